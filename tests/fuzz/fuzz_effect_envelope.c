/*
 * fuzz_effect_envelope: whatever bytes come as an Effect Envelope: they are refused with a status
 * and a text, or come to an enqueue of the sender's tenant within all limits, whose detail can be
 * read and whose key and fingerprint are the same when it comes again. The payload of the corpus,
 * where it names a secret, is in none of it in plain.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/vault.h"
#include "config/config.h"
#include "core/effect_names.h"
#include "engine/request_builder.h"
#include "envelope/envelope.h"
#include "store/store.h"

enum { MEMORY_MAX = 256 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char types[] =
    "connectors:\n"
    "  pay: {url: \"http://127.0.0.1/\", idempotency: {header: Idempotency-Key, keeps: 24h}}\n"
    "effects:\n"
    "  a.b:\n"
    "    connector: pay\n"
    "    request: {path: \"/x/{target.id}\", headers: {X-Y: \"{payload.h}\"}}\n"
    "    compensate: {effect: c.d, payload: {charge: \"{provider_ref}\", n: \"{payload.n}\"}}\n"
    "    order: \"{target.id}\"\n"
    "    redact: [/card]\n"
    "  c.d: {connector: pay, request: {path: \"/y\"}}\n";

static struct {
    struct config *config;
    struct vault *vault;
    struct engine *engine;
} house;

static void open_house(void)
{
    static struct config_faults faults;
    struct store *store = NULL;
    const struct store_options store_options = {.mem = &mem_libc};
    const struct engine_options engine_options = {.mem = &mem_libc};
    const struct vault_options vault_options = {.is_ephemeral = true};
    ASSERT(config_new(&mem_libc, &house.config, NULL) == OK);
    ASSERT(config_read(house.config, slice_str(types), &faults) == OK);
    ASSERT(config_check(house.config, &faults) == OK);
    ASSERT(store_open("mem:", &store_options, &store, NULL) == OK);
    ASSERT(engine_new(store, &engine_options, &house.engine, NULL) == OK);
    ASSERT(vault_new(&vault_options, &house.vault, NULL) == OK);
}

static bool holds(struct slice text, const char *part)
{
    return text.len > 0 && memmem(text.data, text.len, part, strlen(part)) != NULL;
}

static void check_call(const struct engine_call *call, struct arena *arena)
{
    const struct request *request = &call->request;
    struct effect_detail detail;
    struct err err;
    ASSERT(slice_is(request->key.tenant, "acme")); /* P9 */
    ASSERT(builder_check(call, &err) == OK);
    ASSERT(effect_detail_decode(request->detail, arena, &detail, &err) == OK);
    struct effect_names names = effect_names_of(request->detail);
    ASSERT((names.effect_id.len > 0) == (detail.effect_id.len > 0));
    ASSERT((names.command_id.len > 0) == (detail.command_id.len > 0));
    ASSERT(!holds(call->request_body, "S3CRET") && !holds(detail.redacted, "S3CRET") &&
           !holds(detail.undo, "S3CRET"));
}

static void drive(struct slice text, struct arena *arena)
{
    const struct json_value *root = NULL;
    struct engine_call first = {.arena = arena};
    struct engine_call again = {.arena = arena};
    struct effect_order order;
    struct member_fault fault = {.code = NULL};
    struct effect_sender sender = {.types = &house.config->effects,
        .vault = house.vault,
        .engine = house.engine,
        .arena = arena,
        .tenant = SLICE_LIT("acme"),
        .text = text};
    if (json_read(text, arena, &root, NULL) != OK) {
        return;
    }
    enum status status = effect_envelope_read(&sender, root, &first, &order, &fault);
    if (status == E_INVALID) {
        unsigned code = effect_fault_status(&fault);
        ASSERT(code >= 400 && code < 500 && fault.err.text[0] != '\0');
    }
    if (status == OK) {
        check_call(&first, arena);
        ASSERT(effect_envelope_read(&sender, root, &again, &order, &fault) == OK);
        ASSERT(digest_equal(&first.request.key.hash, &again.request.key.hash));
        ASSERT(digest_equal(&first.request.fingerprint, &again.request.fingerprint));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    if (house.config == NULL) {
        open_house();
    }
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    drive(slice_of((const char *)data, size), &arena);
    arena_release(&arena);
    return 0;
}
