#include "once/once.h"

#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/name.h"
#include "lib/brief.h"
#include "lib/call.h"

static_assert((int)ONCE_OK == (int)OK, "public numbers are our own");
static_assert((int)ONCE_E_UNKNOWN == (int)E_UNKNOWN, "public numbers");
static_assert((int)ONCE_E_MISUSE == (int)E_MISUSE, "public numbers");
static_assert(sizeof((struct once_error *)0)->text == ERR_TEXT_BYTES_MAX, "texts are copied whole");

/* ---- what all files of the library share --------------------------------------------------- */

/* client_error of libonce-client is a copy: the two libraries have no public header in common, and
 * what both are built on includes none. */
int handle_error(struct once_error *error, enum status status, const struct err *err)
{
    if (error == NULL) {
        return (int)status;
    }
    memset(error, 0, sizeof *error);
    error->result = (int)status;
    if (status == OK) {
        return ONCE_OK;
    }
    if (err != NULL && err->text[0] != '\0') {
        memcpy(error->text, err->text, sizeof error->text);
        memcpy(error->hint, err->hint, sizeof error->hint);
    } else {
        const char *text = status == E_NOMEM ? "out of memory" : status_name(status);
        memcpy(error->text, text, strlen(text) + 1);
    }
    return (int)status;
}

enum status handle_writes(const struct once *once, struct err *err)
{
    if (once == NULL) {
        return err_set(err, E_MISUSE, "once is NULL");
    }
    return once->engine == NULL ? err_set(err, E_MISUSE, "the store was opened read-only") : OK;
}

void handle_settled(struct once *once)
{
    (void)pthread_mutex_lock(&once->lock);
    once->settled_count++;
    (void)pthread_cond_broadcast(&once->settled);
    (void)pthread_mutex_unlock(&once->lock);
}

enum status handle_operation_id(const char *text, struct op_id *ret_id, struct err *err)
{
    static const struct op_id zeros = {{0}}; /* no operation has it: in a query it means any */
    if (op_id_read(slice_str(text), ret_id) && !op_id_equal(ret_id, &zeros)) {
        return OK;
    }
    return err_set(
        err, E_INVALID, "operation_id '%.64s' is not \"op_\" and a UUID", text == NULL ? "" : text);
}

/* ---- open and close ------------------------------------------------------------------------ */

/* A read-only handle may name any tenant, even one older than the rule for names. */
static enum status take_tenant(
    struct once *once, const struct once_options *options, struct err *err)
{
    const char *tenant = options->tenant;
    struct slice text = slice_str(tenant == NULL || tenant[0] == '\0' ? "default" : tenant);
    if (text.len > LIMIT_TENANT_BYTES_MAX) {
        return err_set(err, E_INVALID, "tenant is %zu bytes long, more than tenant_bytes_max (%d)",
            text.len, LIMIT_TENANT_BYTES_MAX);
    }
    memcpy(once->tenant_text, text.data, text.len);
    once->tenant = slice_of(once->tenant_text, text.len);
    return options->read_only != 0 ? name_check_utf8("tenant", once->tenant, err)
                                   : name_check("tenant", once->tenant, err);
}

static enum status open_store(
    struct once *once, const struct once_options *options, bool briefly, struct err *err)
{
    if (options->lock_wait_ms < 0) {
        return err_set(err, E_INVALID, "lock_wait_ms must be positive");
    }
    struct store_options store_options = {
        .mem = &once->mem,
        .read_only = options->read_only != 0,
        .must_exist = options->must_exist != 0,
        .briefly = briefly,
        .lock_wait_ms = options->lock_wait_ms,
    };
    const char *url = options->store == NULL ? "journal:./once-data" : options->store;
    struct store *store;
    once->store_url = mem_copy_text(&once->mem, slice_str(url));
    if (once->store_url == NULL) {
        return E_NOMEM;
    }
    enum status status = store_open(url, &store_options, &store, err);
    if (status != OK || store_options.read_only) {
        once->store = status == OK ? store : NULL;
        return status;
    }
    struct engine_options engine_options = {.mem = &once->mem};
    return engine_new(store, &engine_options, &once->engine, err);
}

/* Monotonic, because the wall clock may be set during a wait. */
static enum status init_locks(struct once *once, struct err *err)
{
    pthread_condattr_t attributes;
    int fault = pthread_condattr_init(&attributes);
    if (fault == 0) {
        fault = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        fault = fault == 0 ? pthread_cond_init(&once->settled, &attributes) : fault;
        (void)pthread_condattr_destroy(&attributes);
    }
    if (fault != 0) {
        return err_errno(err, E_UNAVAILABLE, fault, "cannot make a condition variable");
    }
    fault = pthread_mutex_init(&once->lock, NULL);
    if (fault != 0) {
        (void)pthread_cond_destroy(&once->settled);
        return err_errno(err, E_UNAVAILABLE, fault, "cannot make a lock");
    }
    return OK;
}

static void free_handle(struct once *once)
{
    struct mem mem = once->mem;
    config_free(once->config);
    vault_free(once->vault);
    mem_free(&mem, once->store_url);
    (void)pthread_cond_destroy(&once->settled);
    (void)pthread_mutex_destroy(&once->lock);
    mem_free(&mem, once);
}

static enum status new_handle(
    const struct once_options *options, bool briefly, struct once **ret_once, struct err *err)
{
    struct mem mem = mem_libc;
    if (options->resize != NULL) {
        mem = (struct mem){.resize = options->resize, .context = options->resize_context};
    }
    struct once *once = mem_zalloc(&mem, 1, sizeof *once);
    if (once == NULL) {
        return E_NOMEM;
    }
    once->mem = mem;
    enum status status = init_locks(once, err);
    if (status != OK) {
        mem_free(&mem, once);
        return status;
    }
    status = take_tenant(once, options, err);
    status = status == OK ? open_store(once, options, briefly, err) : status;
    if (status != OK) {
        free_handle(once);
        return status;
    }
    *ret_once = once;
    return OK;
}

static int open_handle(const struct once_options *options, bool briefly, struct once **ret_once,
    struct once_error *error)
{
    static const struct once_options options_default = {0};
    struct err err = {0};
    if (ret_once == NULL) {
        return handle_error(error, err_set(&err, E_MISUSE, "ret_once is NULL"), &err);
    }
    *ret_once = NULL;
    enum status status =
        new_handle(options == NULL ? &options_default : options, briefly, ret_once, &err);
    return handle_error(error, status, &err);
}

int once_open(const struct once_options *options, struct once **ret_once, struct once_error *error)
{
    return open_handle(options, false, ret_once, error);
}

int brief_open(const struct once_options *options, struct once **ret_once, struct once_error *error)
{
    return open_handle(options, true, ret_once, error);
}

int once_close(struct once *once, struct once_error *error)
{
    struct err err = {0};
    enum status status = OK;
    if (once != NULL) {
        status = once->engine != NULL ? engine_free(once->engine, &err)
                                      : once->store->ops->close(once->store, &err);
        free_handle(once);
    }
    return handle_error(error, status, &err);
}

/* ---- one operation ------------------------------------------------------------------------- */

/* A thread that waits for a call with effects. */
struct lib_waiter {
    struct lib_call call; /* first */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
};

static void waiter_done(struct lib_call *call)
{
    struct lib_waiter *waiter = CONTAINER_OF(call, struct lib_waiter, call);
    (void)pthread_mutex_lock(&waiter->lock);
    waiter->is_done = true;
    (void)pthread_cond_signal(&waiter->changed);
    (void)pthread_mutex_unlock(&waiter->lock);
}

/* OK: the call is decided, and its own err says how. */
static enum status wait_for(struct lib_waiter *waiter, struct err *err)
{
    enum status status = lib_call_submit(&waiter->call, waiter_done, err);
    (void)pthread_mutex_lock(&waiter->lock);
    while (status == OK && !waiter->is_done) {
        (void)pthread_cond_wait(&waiter->changed, &waiter->lock);
    }
    (void)pthread_mutex_unlock(&waiter->lock);
    return status;
}

/* Submit, wait, answer. */
static enum status run(
    struct once *once, const struct lib_ask *ask, struct once_answer **ret_answer, struct err *err)
{
    struct lib_waiter waiter = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct lib_call *call = &waiter.call;
    enum status status = lib_call_init(call, once, ask, err);
    if (status != OK) {
        return status;
    }
    if (call->effects == NULL) {
        (void)!engine_do(once->engine, &call->engine); /* its err says how it went */
    } else {
        status = wait_for(&waiter, err);
    }
    status = status == OK ? lib_call_answer(call, ret_answer, err) : status;
    lib_call_release(call);
    return status;
}

static int do_ask(struct once *once, const struct lib_ask *ask, struct once_answer **ret_answer,
    struct once_error *error)
{
    struct err err = {0};
    if (ret_answer != NULL) {
        *ret_answer = NULL;
    }
    return handle_error(error, run(once, ask, ret_answer, &err), &err);
}

static int do_call(struct once *once, const struct once_call *what, struct once_answer **ret_answer,
    struct once_error *error)
{
    return do_ask(once, &(struct lib_ask){.what = what}, ret_answer, error);
}

int once_begin(struct once *once, const struct once_begin *begin, struct once_answer **ret_answer,
    struct once_error *error)
{
    if (ret_answer == NULL) {
        struct err err = {0};
        return handle_error(
            error, err_set(&err, E_MISUSE, "ret_answer is NULL: the grant would be lost"), &err);
    }
    return do_call(once, &(struct once_call){.begin = begin}, ret_answer, error);
}

int once_seal(struct once *once, const struct once_seal *seal, struct once_answer **ret_answer,
    struct once_error *error)
{
    return do_call(once, &(struct once_call){.seal = seal}, ret_answer, error);
}

int once_seal_effects(struct once *once, const struct once_seal *seal, struct once_bytes effects,
    struct once_answer **ret_answer, struct once_error *error)
{
    struct lib_ask ask = {.what = &(struct once_call){.seal = seal}, .effects = &effects};
    return do_ask(once, &ask, ret_answer, error);
}

int once_release(struct once *once, const struct once_hold *hold, struct once_answer **ret_answer,
    struct once_error *error)
{
    return do_call(once, &(struct once_call){.release = hold}, ret_answer, error);
}

int once_unknown(struct once *once, const struct once_hold *hold, struct once_answer **ret_answer,
    struct once_error *error)
{
    return do_call(once, &(struct once_call){.unknown = hold}, ret_answer, error);
}

int once_renew(struct once *once, const struct once_hold *hold, struct once_answer **ret_answer,
    struct once_error *error)
{
    return do_call(once, &(struct once_call){.renew = hold}, ret_answer, error);
}

int once_resolve(struct once *once, const struct once_resolve *resolve,
    struct once_answer **ret_answer, struct once_error *error)
{
    return do_call(once, &(struct once_call){.resolve = resolve}, ret_answer, error);
}

void once_answer_free(struct once *once, struct once_answer *answer)
{
    if (answer != NULL) {
        mem_free(&once->mem, answer);
    }
}

/* ---- without blocking ---------------------------------------------------------------------- */

/* The completion of a submitted call. */
static void submitted_done(struct lib_call *call)
{
    struct err err = {0};
    struct once_answer *answer = NULL;
    struct once_error error;
    (void)handle_error(&error, lib_call_answer(call, &answer, &err), &err);
    call->done(call->done_context, error.result, answer, &error);
    const struct mem *mem = &call->once->mem;
    lib_call_release(call);
    mem_free(mem, call);
}

static enum status submit(
    struct once *once, const struct lib_ask *ask, once_done done, void *context, struct err *err)
{
    enum status status = handle_writes(once, err);
    if (status != OK) {
        return status;
    }
    if (ask->what == NULL || done == NULL) {
        return err_set(err, E_MISUSE, "%s is NULL", ask->what == NULL ? "call" : "done");
    }
    struct lib_call *call = mem_alloc(&once->mem, sizeof *call);
    if (call == NULL) {
        return E_NOMEM;
    }
    status = lib_call_init(call, once, ask, err);
    if (status == OK) {
        call->done = done;
        call->done_context = context;
        status = lib_call_submit(call, submitted_done, err);
        if (status == OK) {
            return OK; /* the call belongs to the engine now */
        }
        lib_call_release(call);
    }
    mem_free(&once->mem, call);
    return status;
}

int once_submit(struct once *once, const struct once_call *call, once_done done, void *context,
    struct once_error *error)
{
    struct err err = {0};
    struct lib_ask ask = {.what = call, .copies = true};
    return handle_error(error, submit(once, &ask, done, context, &err), &err);
}

int once_submit_seal_effects(struct once *once, const struct once_seal *seal,
    struct once_bytes effects, once_done done, void *context, struct once_error *error)
{
    struct err err = {0};
    struct lib_ask ask = {
        .what = &(struct once_call){.seal = seal}, .effects = &effects, .copies = true};
    return handle_error(error, submit(once, &ask, done, context, &err), &err);
}

/* ---- names --------------------------------------------------------------------------------- */

const char *once_decision_name(enum once_decision decision)
{
    return decision_name((enum decision_kind)decision);
}

const char *once_status_name(enum once_status status)
{
    return record_status_name((enum record_status)status);
}

const char *once_result_name(int result)
{
    return status_name((enum status)result);
}

const char *once_version(void)
{
    return ONCE_VERSION;
}
