/*
 * The configuration: what is taken, what is refused and where, and one table behind all of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_c.h"
#include "config/config.h"
#include "faulty_mem.h"
#include "files.h"

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

struct reading {
    struct config *config;
    struct config_faults faults;
    enum status status;
};

static struct reading read_text(struct slice text)
{
    struct reading reading = {.config = NULL};
    assert_int_equal(config_new(&mem_libc, &reading.config, NULL), OK);
    reading.status = config_read(reading.config, text, &reading.faults);
    return reading;
}

static struct reading read_str(const char *text)
{
    return read_text(slice_str(text));
}

/* Exactly one fault, at this place, with these words. */
static void refuse(
    const char *text, unsigned line, unsigned column, const char *says, const char *hint)
{
    struct reading reading = read_str(text);
    const struct config_fault *fault = &reading.faults.items[0];
    if (reading.status != E_INVALID || reading.faults.count != 1 || fault->line != line ||
        fault->column != column || strstr(fault->text, says) == NULL ||
        (hint != NULL && (fault->hint == NULL || strstr(fault->hint, hint) == NULL))) {
        fail_msg("%s\nstatus %d, %zu faults; the first: %u:%u: %s (%s)", text, reading.status,
            reading.faults.count, fault->line, fault->column,
            fault->text == NULL ? "" : fault->text, fault->hint == NULL ? "" : fault->hint);
    }
    config_free(reading.config);
}

static struct config *take(const char *text)
{
    struct reading reading = read_str(text);
    if (reading.status != OK) {
        fail_msg("%s\n%s", text, reading.faults.items[0].text);
    }
    assert_int_equal(reading.faults.count, 0);
    return reading.config;
}

static void an_empty_file_is_every_default(void **state)
{
    (void)state;
    const char *const texts[] = {"", "\n", "# words\n", "---\n", "~\n", "{}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config *config = take(texts[i]);
        assert_int_equal(config->listen_count, 1);
        assert_string_equal(config->listen[0], "127.0.0.1:7411");
        assert_string_equal(config->store, "journal:./once-data");
        assert_int_equal(config->body_bytes_max, 10 << 20);
        assert_int_equal(config->drain_ms, 10000);
        assert_true(config->duplicate_rate == 20);
        assert_true(config->log_decisions);
        assert_false(config->has_auth);
        assert_null(config->tls_cert);
        assert_int_equal(config_check(config, &(struct config_faults){0}), OK);
        config_free(config);
    }
}

static void the_file_of_the_design_is_read(void **state)
{
    (void)state;
    struct config *config = take(
        "listen: [127.0.0.1:7411, \"[::1]:0\", unix:/run/once/once.sock]\n"
        "store: journal:/var/lib/once\n"
        "tls: {cert: c.pem, key: k.pem}\n"
        "auth:\n"
        "  tokens:\n"
        "    - {sha256: \"" HASH_A "\", tenant: acme, rights: [execute, operate, audit, confirm], "
        "name: \"checkout service\"}\n"
        "    - {sha256: " HASH_B ", tenant: '*'}\n"
        "limits: {body_bytes_max: 64KiB, outcome_bytes_max: 1MiB, duplicate_rate: 0.5, "
        "duplicate_burst: 7}\n"
        "evidence: {retain: 30d, checkpoint_every: 5m}\n"
        "log: {level: warn, format: human, decisions: false}\n"
        "drain: 300ms\n"
        "loops: 3\n");
    assert_int_equal(config->listen_count, 3);
    assert_string_equal(config->listen[1], "[::1]:0");
    assert_string_equal(config->listen[2], "unix:/run/once/once.sock");
    assert_string_equal(config->tls_key, "k.pem");
    assert_int_equal(config->token_count, 2);
    assert_int_equal(config->tokens[0].rights, 15);
    assert_int_equal(config->tokens[0].sha256.bytes[31], 0xaa);
    assert_true(slice_is(config->tokens[0].name, "checkout service"));
    assert_true(slice_is(config->tokens[1].tenant, "*"));
    assert_int_equal(config->tokens[1].rights, 0);
    assert_int_equal(config->body_bytes_max, 65536);
    assert_true(config->duplicate_rate == 0.5 && config->duplicate_burst == 7);
    assert_int_equal(config->retain_ms, 30LL * 86400000);
    assert_int_equal(config->log_level, CONFIG_LEVEL_WARN);
    assert_int_equal(config->log_format, CONFIG_FORMAT_HUMAN);
    assert_false(config->log_decisions);
    assert_int_equal(config->loops, 3);
    config_free(config);
}

static void an_unknown_key_is_refused_with_the_nearest_name(void **state)
{
    (void)state;
    refuse("lisen: 127.0.0.1:1\n", 1, 1, "unknown key 'lisen'", "did you mean 'listen'?");
    refuse("store: x\nLimits: {}\n", 2, 1, "unknown key 'Limits'", "did you mean 'limits'?");
    refuse("limits:\n  body_byte_max: 1KiB\n", 2, 3, "unknown key 'body_byte_max'",
        "did you mean 'body_bytes_max'?");
    refuse("limits: {retain: 1d}\n", 1, 10, "unknown key 'retain'", NULL);
    refuse("auth: {tokens: [{sha265: " HASH_A ", sha256: " HASH_A ", tenant: a, rights: audit}]}\n",
        1, 18, "unknown key 'sha265'", "did you mean 'sha256'?");
    refuse("zzz: 1\n", 1, 1, "unknown key 'zzz'", "once check --example shows every setting");
    refuse("\"\": 1\n", 1, 1, "unknown key ''", NULL);
}

static void a_section_is_not_a_setting_of_another(void **state)
{
    (void)state;
    refuse("limits: {gateway: 1}\n", 1, 10, "unknown key 'gateway'", NULL);
}

static void yaml_with_two_readings_is_refused_at_its_place(void **state)
{
    (void)state;
    refuse("store: &a x\n", 1, 8, "anchors", NULL);
    refuse("drain: *a\n", 1, 8, "aliases", NULL);
    refuse("store: !!str x\n", 1, 8, "tags", NULL);
    refuse("limits: !x {}\n", 1, 9, "tags", NULL);
    refuse(
        "store: a\nstore: b\n", 2, 1, "key 'store' is given twice; the first is in line 1", NULL);
    refuse("store: a\n---\nstore: b\n", 2, 1, "a second document", NULL);
    refuse("limits:\n\tbody_bytes_max: 1KiB\n", 2, 1, "a tab", NULL);
    refuse("store: \"a\tb\"\n", 1, 10, "a tab", NULL);
    refuse("store: a\rdrain: 1s\n", 1, 9, "a carriage return", NULL);
    refuse("store: a\xC2\x85", 1, 9, "a line separator", NULL);
    refuse("store: \xE2\x80\xA8 b", 1, 8, "a line separator", NULL);
    refuse("store: \xFF\n", 1, 8, "not UTF-8", NULL);
    refuse("store: \xC3\n", 1, 8, "not UTF-8", NULL);
    refuse("\xFF\xFEs\n", 1, 1, "not UTF-8", NULL);
    refuse("# \xC3\xA4\nx\x01: 1\n", 2, 2, "a control character", NULL);
    refuse("store: \"a\\0b\"\n", 1, 8, "a NUL character", NULL);
    refuse("store: [a\n", 2, 1, "not YAML", NULL);
    refuse("- a\n", 1, 1, "must be a map", NULL);
    refuse("hello\n", 1, 1, "must be a map", NULL);
    refuse("? {a: b}\n: c\n", 1, 3, "a key must be a name", NULL);
}

static void a_file_that_breaks_off_is_refused_at_its_end(void **state)
{
    (void)state;
    refuse("drain: 3s\nlimits", 2, 7, "not YAML: could not find expected ':'", NULL);
    refuse("drain: 3s\nlimits\n", 3, 1, "not YAML: could not find expected ':'", NULL);
}

static void size_depth_and_width_are_bounded(void **state)
{
    (void)state;
    struct buf text;
    buf_init(&text, &mem_libc, 2 * CONFIG_BYTES_MAX);
    buf_str(&text, "store: ");
    for (int i = 0; i < CONFIG_DEPTH_MAX + 1; i++) {
        buf_char(&text, '[');
    }
    buf_char(&text, '\0');
    refuse(text.data, 1, 7 + CONFIG_DEPTH_MAX, "nested deeper than 16 levels", NULL);
    buf_clear(&text);
    for (int i = 0; i < 300; i++) {
        buf_printf(&text, "k%d: 1\n", i);
    }
    buf_char(&text, '\0');
    refuse(text.data, 257, 1, "more than 256 keys", NULL);
    buf_clear(&text);
    while (text.len <= CONFIG_BYTES_MAX) {
        buf_str(&text, "# words to fill a file with\n");
    }
    struct reading reading = read_text(buf_view(&text));
    assert_int_equal(reading.status, E_INVALID);
    assert_non_null(strstr(reading.faults.items[0].text, "larger than 1048576 bytes"));
    config_free(reading.config);
    buf_release(&text);
}

static void a_wrong_value_says_what_is_expected(void **state)
{
    (void)state;
    refuse("drain: soon\n", 1, 8, "'soon' is not a duration such as 300ms", "the default is 10s");
    refuse("drain: 10\n", 1, 8, "'10' is not a duration", NULL);
    refuse("limits: {body_bytes_max: 9MB}\n", 1, 26, "is not a size such as 64KiB", "10MiB");
    refuse(
        "limits: {body_bytes_max: 1KiB, connections_max: -1}\n", 1, 49, "not a whole number", NULL);
    refuse("limits: {body_bytes_max: 1023}\n", 1, 26, "is less than 1KiB", NULL);
    refuse("limits: {outcome_bytes_max: 17MiB}\n", 1, 29, "is more than 16MiB", NULL);
    refuse("drain: 2h\n", 1, 8, "'2h' is more than 1h", NULL);
    refuse("limits: {duplicate_rate: fast}\n", 1, 26, "is not a number such as 20", NULL);
    refuse("limits: {duplicate_rate: 1.2.3}\n", 1, 26, "is not a number", NULL);
    refuse("limits: {duplicate_rate: 1e3}\n", 1, 26, "is not a number", NULL);
    refuse("limits: {duplicate_rate: -1}\n", 1, 26, "is not a number", NULL);
    refuse("limits: {duplicate_burst: 0.5}\n", 1, 27, "is less than 1", NULL);
    refuse("log: {level: loud}\n", 1, 14, "is not one of debug, info, warn, error", "info");
    refuse("log: {decisions: yes}\n", 1, 18, "is not true or false", NULL);
    refuse("store:\n", 1, 7, "store has no value", "default");
    refuse("store: [a]\n", 1, 8, "must be one value, not a list", "journal:./once-data");
    refuse("tls: {cert: {a: b}}\n", 1, 13, "must be one value, not a map", NULL);
    refuse("tls: {cert: ''}\n", 1, 13, "is empty", NULL);
    refuse("limits: 3\n", 1, 9, "limits must be a map", NULL);
    refuse("limits:\n", 1, 1, "limits must be a map", NULL);
    refuse("listen: []\n", 1, 9, "listen is empty", NULL);
}

static void only_addresses_are_listened_on(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum config_address kind;
    } cases[] = {
        {"127.0.0.1:7411", CONFIG_ADDRESS_LOOPBACK},
        {"127.9.9.9:0", CONFIG_ADDRESS_LOOPBACK},
        {"[::1]:7411", CONFIG_ADDRESS_LOOPBACK},
        {"[::ffff:127.0.0.1]:1", CONFIG_ADDRESS_LOOPBACK},
        {"0.0.0.0:7411", CONFIG_ADDRESS_PUBLIC},
        {"10.0.0.1:65535", CONFIG_ADDRESS_PUBLIC},
        {"[::]:7411", CONFIG_ADDRESS_PUBLIC},
        {"[::ffff:10.0.0.1]:1", CONFIG_ADDRESS_PUBLIC},
        {"unix:/run/once.sock", CONFIG_ADDRESS_UNIX},
        {"unix:a", CONFIG_ADDRESS_UNIX},
        {"unix:", CONFIG_ADDRESS_WRONG},
        {"localhost:7411", CONFIG_ADDRESS_WRONG},
        {"127.0.0.1", CONFIG_ADDRESS_WRONG},
        {"127.0.0.1:", CONFIG_ADDRESS_WRONG},
        {"127.0.0.1:65536", CONFIG_ADDRESS_WRONG},
        {"127.0.0.1:000080", CONFIG_ADDRESS_WRONG},
        {"127.0.0.1:80x", CONFIG_ADDRESS_WRONG},
        {"127.1:80", CONFIG_ADDRESS_WRONG},
        {":7411", CONFIG_ADDRESS_WRONG},
        {"7411", CONFIG_ADDRESS_WRONG},
        {"::1:7411", CONFIG_ADDRESS_WRONG},
        {"[::1]", CONFIG_ADDRESS_WRONG},
        {"[::1", CONFIG_ADDRESS_WRONG},
        {"[]:1", CONFIG_ADDRESS_WRONG},
        {"", CONFIG_ADDRESS_WRONG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (config_address(cases[i].text) != cases[i].kind) {
            fail_msg("'%s' is %d", cases[i].text, config_address(cases[i].text));
        }
    }
    refuse("listen: localhost\n", 1, 9, "'localhost' is not an address", "127.0.0.1:7411");
    refuse("listen: \":x\"\n", 1, 9, "':x' is not an address", "127.0.0.1:7411");
    refuse("listen: localhost:65536\n", 1, 9, "'localhost:65536' is not an address", NULL);
    refuse("listen: [127.0.0.1:1, localhost:1]\n", 1, 23, "'127.0.0.1:1' is given twice", NULL);
    refuse("listen: [127.0.0.1:1, 7411]\n", 1, 23, "'7411' is not an address", "[::1]:7411");
}

static void tokens_are_checked_and_never_shown(void **state)
{
    (void)state;
#define TOKEN(rest) "auth: {tokens: [{sha256: " HASH_A rest "}]}\n"
    refuse(TOKEN(", rights: audit"), 1, 17, "the token has no tenant", NULL);
    refuse(TOKEN(", tenant: a"), 1, 17, "the token has no rights", NULL);
    refuse(TOKEN(", tenant: a, rights: []"), 1, 111, "rights must be a list of at least", NULL);
    refuse(TOKEN(", tenant: a, rights: [audit, root]"), 1, 119, "'root' is not a right", "operate");
    refuse(TOKEN(", tenant: '', rights: audit"), 1, 100, "tenant must be a text", NULL);
    refuse(TOKEN(", tenant: '*', rights: audit"), 1, 17, "may only read /metrics", NULL);
    refuse("auth: {tokens: []}\n", 1, 16, "at least one token", "once token new");
    refuse("auth: {tokens: [abc]}\n", 1, 17, "a token must be a map", NULL);
    refuse("auth: {tokens: [{sha256: " HASH_A ", tenant: a, rights: audit}, "
           "{sha256: " HASH_A ", tenant: b, rights: audit}]}\n",
        1, 119, "the same token is given twice", NULL);
    struct reading reading =
        read_str("auth: {tokens: [{sha256: once_secret, tenant: a, rights: root, zzz: 1}]}\n");
    struct buf shown;
    buf_init(&shown, &mem_libc, 1 << 16);
    assert_int_equal(reading.faults.count, 3);
    for (size_t i = 0; i < reading.faults.count; i++) {
        config_fault_put(&shown, "f", &reading.faults.items[i]);
    }
    buf_char(&shown, '\0');
    assert_non_null(strstr(shown.data, "64 hex digits"));
    assert_null(strstr(shown.data, "once_secret"));
    buf_release(&shown);
    config_free(reading.config);
}

static void all_faults_are_told_in_order_and_bounded(void **state)
{
    (void)state;
    struct reading reading = read_str("drain: x\nstore: &a b\nzzz: 1\nloops: y\n");
    assert_int_equal(reading.faults.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(reading.faults.items[i].line, i + 1);
    }
    config_free(reading.config);
    struct buf text;
    buf_init(&text, &mem_libc, 1 << 16);
    for (int i = 0; i < 80; i++) {
        buf_printf(&text, "k%d: 1\n", i);
    }
    reading = read_text(buf_view(&text));
    assert_int_equal(reading.status, E_INVALID);
    assert_int_equal(reading.faults.count, CONFIG_FAULTS_MAX);
    assert_int_equal(reading.faults.more, 80 - CONFIG_FAULTS_MAX);
    buf_release(&text);
    config_free(reading.config);
}

static void a_fault_is_shown_with_its_line_and_a_caret(void **state)
{
    (void)state;
    struct buf shown;
    buf_init(&shown, &mem_libc, 1 << 16);
    struct reading reading = read_str("store: \xC3\xA4\nlimits: {\xC3\xA4: 1, nope: 2}\r\n");
    config_fault_put(&shown, "once.yaml", &reading.faults.items[1]);
    buf_char(&shown, '\0');
    assert_string_equal(shown.data, "once.yaml:2:16: unknown key 'nope'\n"
                                    "    limits: {\xC3\xA4: 1, nope: 2}\n"
                                    "                   ^\n"
                                    "hint: once check --example shows every setting\n");
    config_free(reading.config);
    buf_release(&shown);
}

static void a_public_address_needs_auth(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config = take("listen: [127.0.0.1:0, 0.0.0.0:7411]\n");
    assert_true(config_is_public(config));
    assert_int_equal(config_check(config, &faults), E_INVALID);
    assert_int_equal(faults.count, 1);
    assert_int_equal(faults.items[0].line, 1);
    assert_int_equal(faults.items[0].column, 23);
    assert_non_null(strstr(faults.items[0].text, "will not listen on '0.0.0.0:7411' without auth"));
    assert_non_null(strstr(faults.items[0].hint, "once token new"));
    config_free(config);
    config = take(
        "listen: 0.0.0.0:7411\nauth: {tokens: [{sha256: " HASH_A ", tenant: a, rights: audit}]}\n");
    faults.count = 0;
    assert_int_equal(config_check(config, &faults), OK);
    config_free(config);
}

static void settings_have_to_go_together(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config =
        take("tls: {cert: a}\nlimits: {body_bytes_max: 2MiB, in_flight_bytes_max: 1MiB}\n");
    assert_int_equal(config_check(config, &faults), E_INVALID);
    assert_int_equal(faults.count, 2);
    assert_string_equal(faults.items[0].text, "tls.cert is set and tls.key is not");
    config_free(config);
}

static void a_flag_wins_and_names_itself(void **state)
{
    (void)state;
    struct config_faults faults = {0};
    struct config *config = take("listen: 127.0.0.1:1\ndrain: 1s\n");
    const struct config_option *listen = config_option_find("listen");
    assert_int_equal(config_set(config, listen, "127.0.0.1:2", "--listen", false, &faults), OK);
    assert_int_equal(config_set(config, listen, "127.0.0.1:3", "--listen", true, &faults), OK);
    assert_int_equal(config->listen_count, 2);
    assert_string_equal(config->listen[0], "127.0.0.1:2");
    assert_int_equal(
        config_set(config, config_option_find("drain"), "x", "ONCE_DRAIN", false, &faults),
        E_INVALID);
    assert_non_null(strstr(faults.items[0].text, "ONCE_DRAIN: drain: 'x' is not a duration"));
    assert_int_equal(config->drain_ms, 1000);
    config_free(config);
}

static void what_needs_a_restart_is_found(void **state)
{
    (void)state;
    struct config *old = take("");
    static const char *const texts[][2] = {
        {"listen: 127.0.0.1:1\n", "listen"},
        {"store: x\n", "store"},
        {"log: {level: warn}\n", "log.level"},
        {"tls: {cert: a}\n", "tls.cert"},
        {"limits: {body_bytes_max: 11MiB}\n", "limits.body_bytes_max"},
        {"limits: {body_bytes_max: 9MiB}\n", NULL},
        {"drain: 1s\nlimits: {duplicate_rate: 1}\n", NULL},
        {"auth: {tokens: [{sha256: " HASH_A ", tenant: a, rights: audit}]}\n", NULL},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config *new = take(texts[i][0]);
        const char *path = config_needs_restart(old, new);
        assert_true((path == NULL) == (texts[i][1] == NULL));
        if (path != NULL) {
            assert_string_equal(path, texts[i][1]);
        }
        config_free(new);
    }
    config_free(old);
}

static void rights_are_read_from_a_list(void **state)
{
    (void)state;
    assert_int_equal(config_rights(SLICE_LIT("execute")), CONFIG_RIGHT_EXECUTE);
    assert_int_equal(
        config_rights(SLICE_LIT("execute,audit")), CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_AUDIT);
    assert_int_equal(config_rights(SLICE_LIT("")), 0);
    assert_int_equal(config_rights(SLICE_LIT("execute,")), 0);
    assert_int_equal(config_rights(SLICE_LIT(",audit")), 0);
    assert_int_equal(config_rights(SLICE_LIT("execute audit")), 0);
}

/* Take the hash off every line that is a setting. */
static void uncomment(struct slice text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        bool is_start = i == 0 || text.data[i - 1] == '\n';
        bool is_prose = i + 2 < text.len && text.data[i + 1] == ' ' && text.data[i + 2] != ' ';
        if (!(is_start && text.data[i] == '#' && !is_prose)) {
            buf_char(out, text.data[i]);
        }
    }
}

static void the_example_has_every_setting_with_its_default(void **state)
{
    (void)state;
    struct buf made;
    struct buf file;
    struct buf open;
    buf_init(&made, &mem_libc, FILE_BYTES_MAX);
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    buf_init(&open, &mem_libc, FILE_BYTES_MAX);
    config_example_put(&made);
    file_read("../examples/once.yaml", &file);
    if (!slice_equal(buf_view(&made), buf_view(&file))) {
        fail_msg("make it again: build/once check --example > examples/once.yaml");
    }
    uncomment(buf_view(&file), &open);
    struct reading plain = read_text(buf_view(&file));
    struct reading reading = read_text(buf_view(&open));
    assert_int_equal(plain.status, OK);
    if (reading.status != OK) {
        fail_msg("line %u: %s", reading.faults.items[0].line, reading.faults.items[0].text);
    }
    assert_int_equal(config_check(reading.config, &reading.faults), OK);
    buf_char(&file, '\0');
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        char facts[256];
        if (o->help == NULL) {
            /* These have tables of their own. */
            assert_int_equal(o->kind, CONFIG_OWN);
            continue;
        }
        const char *absent = o->absent == NULL ? "not set by default" : o->absent;
        (void)snprintf(facts, sizeof facts, "\n# %s: %s%s", o->path,
            o->fallback == NULL && o->absent == NULL ? "" : "default ",
            o->fallback == NULL ? absent : o->fallback);
        const char *at = strstr(file.data, facts);
        assert_non_null(at);
        const char *unsure = strstr(at, "\n# If unsure: ");
        assert_non_null(unsure);
        /* Its own: before the next setting's. */
        assert_null(memmem(at + 1, (size_t)(unsure - at) - 1, "\n\n", 2));
        assert_true(o->env == NULL || memmem(at, (size_t)(unsure - at), o->env, strlen(o->env)));
    }
    /* Uncommented, all is as it is by default but for what has none. */
    assert_string_equal(config_needs_restart(plain.config, reading.config), "tls.cert");
    assert_int_equal(reading.config->token_count, 1);
    config_free(plain.config);
    config_free(reading.config);
    buf_release(&made);
    buf_release(&file);
    buf_release(&open);
}

/* ---- no memory --------------------------------------------------------------------------- */

static void no_allocation_that_fails_is_taken_for_a_configuration(void **state)
{
    (void)state;
    struct faulty faulty = {0};
    struct mem mem = {faulty_resize, &faulty};
    struct buf text;
    buf_init(&text, &mem_libc, 1 << 20);
    buf_str(&text, "auth:\n  tokens:\n");
    for (int i = 0; i < 200; i++) {
        buf_printf(&text, "    - {sha256: '%064d', tenant: t%d, rights: [execute]}\n", i + 1, i);
    }
    enum status status = E_NOMEM;
    for (faulty.fail_at = 1; status != OK; faulty.fail_at++) {
        struct config *config = NULL;
        struct config_faults faults = {0};
        faulty.asked = 0;
        status = config_new(&mem, &config, NULL);
        if (status == OK) {
            status = config_read(config, buf_view(&text), &faults);
        }
        assert_true(status == OK || status == E_NOMEM);
        assert_int_equal(faults.count, 0);
        assert_true(status != OK || config->token_count == 200);
        config_free(config);
        assert_int_equal(faulty.live, 0);
        assert_true(faulty.fail_at < 1000);
    }
    assert_true(faulty.fail_at > 3);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_file_is_every_default),
        TEST(the_file_of_the_design_is_read),
        TEST(an_unknown_key_is_refused_with_the_nearest_name),
        TEST(a_section_is_not_a_setting_of_another),
        TEST(yaml_with_two_readings_is_refused_at_its_place),
        TEST(a_file_that_breaks_off_is_refused_at_its_end),
        TEST(size_depth_and_width_are_bounded),
        TEST(a_wrong_value_says_what_is_expected),
        TEST(only_addresses_are_listened_on),
        TEST(tokens_are_checked_and_never_shown),
        TEST(all_faults_are_told_in_order_and_bounded),
        TEST(a_fault_is_shown_with_its_line_and_a_caret),
        TEST(a_public_address_needs_auth),
        TEST(settings_have_to_go_together),
        TEST(a_flag_wins_and_names_itself),
        TEST(what_needs_a_restart_is_found),
        TEST(rights_are_read_from_a_list),
        TEST(the_example_has_every_setting_with_its_default),
        TEST(no_allocation_that_fails_is_taken_for_a_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
