#include "base/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/io.h"
#include "base/rand.h"
#include "base/secret.h"
#include "base/text.h"

enum {
    VERSION = 1,
    ID_BYTES = 4,
    NONCE_BYTES = 12,
    TAG_BYTES = 16,
    HEAD_BYTES = 1 + ID_BYTES + NONCE_BYTES,
    KEY_FILE_BYTES_MAX = 2 * VAULT_KEY_BYTES + 2, /* hex and the end of a line */
    PATH_BYTES_MAX = 4096,
    NAME_BYTES_MAX = 1024, /* of a tenant and a hash, framed */
};
_Static_assert(HEAD_BYTES + TAG_BYTES == VAULT_OVERHEAD_BYTES, "the layout in vault.h");

struct vault_key {
    unsigned char bytes[VAULT_KEY_BYTES];
    unsigned char id[ID_BYTES]; /* the beginning of its SHA-256: says which one sealed */
};

struct vault {
    const struct mem *mem;
    size_t count;
    struct vault_key keys[VAULT_KEYS_MAX];
    EVP_CIPHER *cipher; /* fetched once: the name of a cipher is looked up under a lock */
};

/* ---- key files ----------------------------------------------------------------------------- */

static enum status key_take(struct vault *vault, const unsigned char *bytes, struct err *err)
{
    struct vault_key *key = &vault->keys[vault->count];
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned hash_bytes = 0;
    ASSERT(vault->count < VAULT_KEYS_MAX);
    if (EVP_Digest(bytes, VAULT_KEY_BYTES, hash, &hash_bytes, EVP_sha256(), NULL) != 1) {
        return err_set(err, E_NOMEM, "out of memory for a key");
    }
    memcpy(key->bytes, bytes, VAULT_KEY_BYTES);
    memcpy(key->id, hash, ID_BYTES);
    mem_wipe(hash, sizeof hash);
    vault->count++;
    return OK;
}

/* VT3. Checks the open file, so that nothing can change between the check and the read. */
static enum status file_check(int fd, const char *path, struct err *err)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0) {
        return err_errno(err, E_UNAVAILABLE, errno, "cannot read key file '%s'", path);
    }
    if (!S_ISREG(facts.st_mode)) {
        return err_set(err, E_INVALID, "key file '%s' is not a file", path);
    }
    if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        (void)err_set(err, E_INVALID, "key file '%s' can be used by others (mode %04o)", path,
            (unsigned)(facts.st_mode & 07777));
        err_hint(err, "chmod 600 '%s'", path);
        return E_INVALID;
    }
    return OK;
}

/* The bytes of one, or of its hex form. */
static enum status key_parse(
    struct vault *vault, struct slice text, const char *path, struct err *err)
{
    unsigned char bytes[VAULT_KEY_BYTES];
    struct slice line = secret_line(text);
    enum status status = OK;
    if (line.len == 2 * (size_t)VAULT_KEY_BYTES && text_hex(line, bytes, sizeof bytes)) {
        status = key_take(vault, bytes, err);
    } else if (text.len == VAULT_KEY_BYTES) {
        memcpy(bytes, text.data, sizeof bytes);
        status = key_take(vault, bytes, err);
    } else {
        status = err_set(err, E_INVALID, "key file '%s' holds neither %d bytes nor %d hex digits",
            path, VAULT_KEY_BYTES, 2 * VAULT_KEY_BYTES);
    }
    mem_wipe(bytes, sizeof bytes);
    return status;
}

static enum status fd_read(struct vault *vault, int fd, const char *path, struct err *err)
{
    const struct io *io = &io_system;
    char text[KEY_FILE_BYTES_MAX + 1];
    size_t len = 0;
    ssize_t got = 1;
    while (got > 0 && len < sizeof text) {
        got = io->pread(io->context, fd, text + len, sizeof text - len, len);
        len += got > 0 ? (size_t)got : 0;
    }
    enum status status =
        got < 0 ? err_errno(err, E_UNAVAILABLE, (int)-got, "cannot read key file '%s'", path)
                : key_parse(vault, slice_of(text, len), path, err);
    mem_wipe(text, sizeof text);
    return status;
}

/* E_UNAVAILABLE with *ret_is_absent: there is no such file. */
static enum status key_read(
    struct vault *vault, const char *path, bool *ret_is_absent, struct err *err)
{
    const struct io *io = &io_system;
    int fd = io->open(io->context, path, O_RDONLY | O_NONBLOCK, 0);
    *ret_is_absent = fd == -ENOENT;
    if (fd < 0) {
        return err_errno(err, E_UNAVAILABLE, -fd, "cannot open key file '%s'", path);
    }
    enum status status = file_check(fd, path, err);
    status = status == OK ? fd_read(vault, fd, path, err) : status;
    (void)io->close(io->context, fd);
    return status;
}

/* ---- a key of our own ---------------------------------------------------------------------- */

static int file_write(const char *path, const void *bytes, size_t size, int flags)
{
    const struct io *io = &io_system;
    int fd = io->open(io->context, path, O_WRONLY | O_CREAT | flags, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return fd;
    }
    int failed = io_write_full(io, fd, bytes, size, 0);
    failed = failed == 0 ? io->fsync(io->context, fd) : failed;
    int closed = io->close(io->context, fd);
    return failed == 0 ? closed : failed;
}

static int dir_sync(const char *path)
{
    char dir[PATH_BYTES_MAX];
    const char *slash = strrchr(path, '/');
    int len = slash == NULL ? 0 : (int)(slash - path);
    (void)snprintf(dir, sizeof dir, "%.*s", len, path);
    return io_sync_dir(&io_system, slash == NULL ? "." : len == 0 ? "/" : dir);
}

/*
 * Whole or absent: it gets its name when it is on disk. A crash before that leaves a file that the
 * next start removes; nothing was sealed with it. The caller has the data directory to itself.
 */
static enum status own_make(const char *path, struct err *err)
{
    const struct io *io = &io_system;
    unsigned char bytes[VAULT_KEY_BYTES];
    char fresh[PATH_BYTES_MAX];
    int len = snprintf(fresh, sizeof fresh, "%s.new", path);
    if (len < 0 || (size_t)len >= sizeof fresh) {
        return err_set(err, E_INVALID, "the path of the body key is too long");
    }
    enum status status = rand_bytes(bytes, sizeof bytes, err);
    if (status != OK) {
        return status;
    }
    (void)io->unlink(io->context, fresh);
    int failed = file_write(fresh, bytes, sizeof bytes, O_EXCL);
    mem_wipe(bytes, sizeof bytes);
    failed = failed == 0 ? io->rename(io->context, fresh, path) : failed;
    failed = failed == 0 ? dir_sync(path) : failed;
    return failed == 0 ? OK
                       : err_errno(err, E_UNAVAILABLE, -failed, "cannot make key file '%s'", path);
}

static enum status ephemeral_make(struct vault *vault, struct err *err)
{
    unsigned char bytes[VAULT_KEY_BYTES];
    enum status status = rand_bytes(bytes, sizeof bytes, err);
    status = status == OK ? key_take(vault, bytes, err) : status;
    mem_wipe(bytes, sizeof bytes);
    return status;
}

static enum status own_read(struct vault *vault, const char *path, struct err *err)
{
    bool is_absent = false;
    enum status status = key_read(vault, path, &is_absent, err);
    if (status == OK || !is_absent) {
        return status;
    }
    status = own_make(path, err);
    return status == OK ? key_read(vault, path, &is_absent, err) : status;
}

bool vault_path(const char *dir, char *ret_path, size_t size)
{
    int len = snprintf(ret_path, size, "%s/body.key", dir);
    return len > 0 && (size_t)len < size;
}

enum status vault_copy_key(
    const char *from_dir, const char *to_dir, bool *ret_copied, struct err *err)
{
    const struct io *io = &io_system;
    char from[PATH_BYTES_MAX];
    char to[PATH_BYTES_MAX];
    char bytes[KEY_FILE_BYTES_MAX];
    if (!vault_path(from_dir, from, sizeof from) || !vault_path(to_dir, to, sizeof to)) {
        return err_set(err, E_INVALID, "the path of the body key is too long");
    }
    int fd = io->open(io->context, from, O_RDONLY, 0);
    *ret_copied = fd != -ENOENT;
    if (fd < 0) {
        return fd == -ENOENT ? OK : err_errno(err, E_UNAVAILABLE, -fd, "cannot read '%s'", from);
    }
    ssize_t size = io->pread(io->context, fd, bytes, sizeof bytes, 0);
    (void)io->close(io->context, fd);
    if (size < 0) {
        return err_errno(err, E_UNAVAILABLE, (int)-size, "cannot read '%s'", from);
    }
    int failed = file_write(to, bytes, (size_t)size, O_TRUNC);
    mem_wipe(bytes, sizeof bytes);
    return failed == 0 ? OK : err_errno(err, E_UNAVAILABLE, -failed, "cannot write '%s'", to);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static enum status keys_read(
    struct vault *vault, const struct vault_options *options, struct err *err)
{
    enum status status = OK;
    bool is_absent = false;
    if (options->key_file_count > VAULT_KEYS_MAX) {
        return err_set(err, E_INVALID, "secrets.key_file has more than %d files", VAULT_KEYS_MAX);
    }
    for (size_t i = 0; status == OK && i < options->key_file_count; i++) {
        status = key_read(vault, options->key_files[i], &is_absent, err);
    }
    if (options->key_file_count > 0) {
        return status;
    }
    if (options->own_path == NULL && options->is_ephemeral) {
        return ephemeral_make(vault, err);
    }
    if (options->own_path == NULL) {
        (void)err_set(err, E_INVALID, "bodies cannot be kept without secrets.key_file");
        err_hint(err, "processes that share a store need the same key: set secrets.key_file");
        return E_INVALID;
    }
    return own_read(vault, options->own_path, err);
}

enum status vault_new(
    const struct vault_options *options, struct vault **ret_vault, struct err *err)
{
    const struct mem *mem = options->mem == NULL ? &mem_libc : options->mem;
    struct vault *vault = mem_zalloc(mem, 1, sizeof *vault);
    if (vault == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    vault->mem = mem;
    vault->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    enum status status = vault->cipher == NULL
                             ? err_set(err, E_UNAVAILABLE, "OpenSSL has no AES-256-GCM")
                             : keys_read(vault, options, err);
    if (status != OK) {
        vault_free(vault);
        return status;
    }
    ASSERT(vault->count > 0);
    *ret_vault = vault;
    return OK;
}

void vault_free(struct vault *vault)
{
    if (vault != NULL) {
        const struct mem *mem = vault->mem;
        EVP_CIPHER_free(vault->cipher);
        mem_wipe(vault, sizeof *vault); /* VT4 */
        mem_free(mem, vault);
    }
}

/* ---- sealing and opening ------------------------------------------------------------------- */

/* Length-framed, so that no two names read the same (P9). */
static size_t name_put(const struct vault_name *name, unsigned char *ret_bytes)
{
    size_t at = 0;
    const struct slice parts[] = {name->tenant, name->key_hash};
    ret_bytes[at++] = (unsigned char)name->kind;
    for (size_t i = 0; i < 2; i++) {
        ASSERT(parts[i].len <= NAME_BYTES_MAX / 2 - 4);
        ret_bytes[at++] = (unsigned char)(parts[i].len >> 8);
        ret_bytes[at++] = (unsigned char)parts[i].len;
        memcpy(ret_bytes + at, parts[i].data, parts[i].len);
        at += parts[i].len;
    }
    return at;
}

/* One pass over the text, in the direction that begin, update and end have. False: OpenSSL has no
 * memory, or the tag does not fit. */
struct pass {
    int (*begin)(EVP_CIPHER_CTX *, const EVP_CIPHER *, ENGINE *, const unsigned char *,
        const unsigned char *);
    int (*update)(EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int);
    int (*end)(EVP_CIPHER_CTX *, unsigned char *, int *);
};
static const struct pass sealing = {EVP_EncryptInit_ex, EVP_EncryptUpdate, EVP_EncryptFinal_ex};
static const struct pass opening = {EVP_DecryptInit_ex, EVP_DecryptUpdate, EVP_DecryptFinal_ex};

struct text {
    const EVP_CIPHER *cipher;
    const struct vault_key *key;
    const unsigned char *nonce;
    const struct vault_name *name;
    struct slice in;
    unsigned char *out;
    unsigned char *tag; /* written by sealing, read by opening */
};

static bool run(const struct pass *pass, const struct text *text)
{
    unsigned char name[NAME_BYTES_MAX];
    unsigned char rest[TAG_BYTES];
    int len = 0;
    size_t name_bytes = name_put(text->name, name);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    bool is_well = context != NULL &&
                   pass->begin(context, text->cipher, NULL, text->key->bytes, text->nonce) == 1 &&
                   pass->update(context, NULL, &len, name, (int)name_bytes) == 1 &&
                   pass->update(context, text->out, &len, (const unsigned char *)text->in.data,
                       (int)text->in.len) == 1;
    if (is_well && pass == &opening) {
        is_well = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, text->tag) == 1;
    }
    is_well = is_well && pass->end(context, rest, &len) == 1; /* GCM has no rest */
    if (is_well && pass == &sealing) {
        is_well = EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text->tag) == 1;
    }
    EVP_CIPHER_CTX_free(context); /* wipes the key schedule */
    return is_well;
}

enum status vault_seal(const struct vault *vault, const struct vault_name *name, struct slice plain,
    struct buf *out, struct err *err)
{
    size_t start = out->len;
    if (plain.len > INT32_MAX - VAULT_OVERHEAD_BYTES) {
        return err_set(err, E_LIMIT, "the body is too long to be sealed");
    }
    char *room = buf_extend(out, plain.len + VAULT_OVERHEAD_BYTES);
    if (room == NULL) {
        return err_set(err, buf_status(out), "no room for a sealed body");
    }
    unsigned char *bytes = (unsigned char *)room;
    bytes[0] = VERSION;
    memcpy(bytes + 1, vault->keys[0].id, ID_BYTES); /* VT2 */
    enum status status = rand_bytes(bytes + 1 + ID_BYTES, NONCE_BYTES, err);
    struct text text = {.cipher = vault->cipher,
        .key = &vault->keys[0],
        .nonce = bytes + 1 + ID_BYTES,
        .name = name,
        .in = plain,
        .out = bytes + HEAD_BYTES,
        .tag = bytes + HEAD_BYTES + plain.len};
    if (status == OK && !run(&sealing, &text)) {
        status = err_set(err, E_NOMEM, "out of memory to seal a body");
    }
    out->len = status == OK ? out->len : start;
    return status;
}

static const struct vault_key *key_of(const struct vault *vault, const char *id)
{
    for (size_t i = 0; i < vault->count; i++) {
        if (memcmp(vault->keys[i].id, id, ID_BYTES) == 0) {
            return &vault->keys[i];
        }
    }
    return NULL;
}

enum status vault_open(const struct vault *vault, const struct vault_name *name,
    struct slice sealed, struct buf *out, struct err *err)
{
    if (sealed.len < VAULT_OVERHEAD_BYTES || sealed.data[0] != VERSION || sealed.len > INT32_MAX) {
        return err_set(err, E_CORRUPT, "a kept body is not a sealed one");
    }
    const struct vault_key *key = key_of(vault, sealed.data + 1);
    if (key == NULL) {
        (void)err_set(err, E_INVALID, "a kept body was sealed with a key that is not given");
        err_hint(err, "add the key's file to secrets.key_file");
        return E_INVALID;
    }
    size_t start = out->len;
    size_t bytes = sealed.len - VAULT_OVERHEAD_BYTES;
    unsigned char tag[TAG_BYTES];
    memcpy(tag, sealed.data + HEAD_BYTES + bytes, TAG_BYTES);
    char *room = buf_extend(out, bytes + 1); /* one more: never nothing */
    if (room == NULL) {
        return err_set(err, buf_status(out), "no room for an opened body");
    }
    struct text text = {.cipher = vault->cipher,
        .key = key,
        .nonce = (const unsigned char *)sealed.data + 1 + ID_BYTES,
        .name = name,
        .in = slice_of(sealed.data + HEAD_BYTES, bytes),
        .out = (unsigned char *)room,
        .tag = tag};
    if (!run(&opening, &text)) {
        mem_wipe(room, bytes); /* VT1 */
        out->len = start;
        return err_set(err, E_CORRUPT, "a kept body was changed, or belongs to something else");
    }
    out->len = start + bytes;
    return OK;
}
