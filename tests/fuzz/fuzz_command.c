/*
 * Whatever bytes are submitted as a command: they are refused with a status and a code, or come to
 * an envelope whose canonical form means the same when it is submitted again: the same key and the
 * same fingerprint. A detail is read whatever its bytes are.
 */
#include <stdlib.h>
#include <string.h>

#include "command/detail.h"
#include "command/envelope.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char registry[] =
    "commands:\n"
    "  a.b:\n"
    "    confirm: confirm\n"
    "    prompt: \"{args.x} {target.y.z} {actor_id} {command}?\"\n"
    "    redact: [/args/secret, /intent/target/secret, /trace/secret]\n"
    "    handler: \"http://127.0.0.1/x\"\n"
    "    args:\n"
    "      x: {type: string, normalise: [trim, upper], max: 9}\n"
    "      p: {type: string, normalise: e164}\n"
    "      n: {type: number, min: -1, max: 1000}\n"
    "      i: {type: integer}\n"
    "      secret: {type: any}\n"
    "  c.d: {binding: effective_actor, handler: \"http://127.0.0.1/x\"}\n";

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static const struct config *loaded(void)
{
    static struct config *config;
    static struct config_faults faults;
    if (config == NULL) {
        must(config_new(&mem_libc, &config, NULL) == OK);
        must(config_read(config, slice_str(registry), &faults) == OK);
    }
    return config;
}

static void check_detail(const struct envelope *envelope, struct arena *arena)
{
    struct mem mem = arena_mem(arena);
    struct buf out;
    struct detail read;
    struct detail detail = {.command = slice_str(envelope->command->name),
        .command_id = envelope->command_id,
        .actor_id = envelope->actor_id,
        .target = envelope->target,
        .args = envelope->args};
    buf_init(&out, &mem, 1 << 20);
    if (detail_put(&detail, &out) == OK) {
        must(detail_read(buf_view(&out), arena, &read) == OK);
        must(slice_equal(read.command, detail.command));
        must(slice_equal(read.actor_id, detail.actor_id));
    }
}

static void check_again(
    const struct envelope_rules *rules, const struct envelope *first, struct arena *arena)
{
    const struct json_value *root = NULL;
    struct envelope again;
    struct envelope_fault fault = {0};
    struct slice prompt;
    must(json_read(first->canonical, arena, &root, NULL) == OK);
    must(envelope_read(rules, root, arena, &again, &fault) == OK);
    must(digest_equal(&again.digest, &first->digest));
    must(slice_equal(again.key, first->key));
    must(envelope_prompt(first, arena, &prompt) == OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct config *config = loaded();
    struct envelope_rules rules = {.commands = config->commands,
        .command_count = config->command_count,
        .tenant = SLICE_LIT("acme")};
    const struct json_value *root = NULL;
    struct envelope envelope;
    struct envelope_fault fault = {0};
    struct detail detail;
    struct arena arena;
    struct slice text = slice_of((const char *)data, size);
    arena_init(&arena, &mem_libc, 256 << 20);
    (void)!detail_read(text, &arena, &detail);
    if (json_read(text, &arena, &root, NULL) == OK) {
        enum status status = envelope_read(&rules, root, &arena, &envelope, &fault);
        if (status == OK) {
            check_again(&rules, &envelope, &arena);
            check_detail(&envelope, &arena);
        } else if (status == E_INVALID) {
            must(fault.status >= 400 && fault.status < 500 && fault.code != NULL);
            must(fault.err.text[0] != '\0');
        }
    }
    arena_release(&arena);
    return 0;
}
