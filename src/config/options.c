/* The table of all settings. The example file is made from these words: they are the manual. */
#include <string.h>

#include "base/limits.h"
#include "config/impl.h"

#define AT(member) .offset = offsetof(struct config, member)

enum {
    SECOND_MS = 1000,
    HOUR_MS = 3600 * SECOND_MS,
    BURST_MAX = 1000000,
    LOOPS_MAX = 256,
    CONNECTIONS_MAX = 1000000,
};
#define DAY_MS (UINT64_C(24) * HOUR_MS)
#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)

const struct config_option config_options[] = {
    ROW("listen", LIST, AT(listen), .form = CONFIG_FORM_ADDRESS,
        .count = offsetof(struct config, listen_count),
        .places = offsetof(struct config, listen_at), .max = CONFIG_LISTEN_MAX,
        .fallback = "127.0.0.1:7411", .env = "ONCE_LISTEN", .flag = "listen", .at_start = true,
        .help = "Where the API listens: an address and port, [IPv6]:port, unix:/path, or a list "
                "of these. :7411 and localhost:7411 are 127.0.0.1:7411. Port 0 takes any free "
                "port. An address that other machines can reach requires auth and should have "
                "tls.",
        .unsure = "Stay on 127.0.0.1 and put a proxy in front."),
    ROW("store", TEXT, AT(store), .places = offsetof(struct config, store_at),
        .fallback = "journal:./once-data", .env = "ONCE_STORE", .flag = "store", .at_start = true,
        .help =
            "Where operations are remembered: journal:DIRECTORY, created if absent; "
            "postgres://… or redis://…, which several processes can share. mem: keeps everything "
            "in memory, loses it at exit, and is for tests only.",
        .unsure = "A journal on a local disk that is backed up."),
    ROW("loops", COUNT, AT(loops), .fallback = "0", .max = LOOPS_MAX, .env = "ONCE_LOOPS",
        .flag = "loops", .at_start = true,
        .help = "Threads that read requests and write answers. 0 means one per core, of which only "
                "as few serve as carry the load: one that serves all connections needs less "
                "processor time than two that share them. A number means that many, and all of "
                "them serve. More than one per core only costs memory.",
        .unsure = "Leave it at 0."),
    ROW("drain", DURATION, AT(drain_ms), .fallback = "10s", .max = HOUR_MS, .env = "ONCE_DRAIN",
        .flag = "drain",
        .help = "How long SIGTERM waits for requests in flight before their connections are cut. "
                "Whatever was answered is durable either way; a client that was cut off has to "
                "check.",
        .unsure = "Leave it, and give the supervisor a longer timeout."),
    ROW("tls.cert", TEXT, AT(tls_cert), .at_start = true, .env = "ONCE_TLS_CERT",
        .flag = "tls-cert", .example = "/etc/once/cert.pem",
        .help = "PEM file with the certificate and its chain. If set, every TCP address accepts "
                "only TLS. SIGHUP reads the file again.",
        .unsure = "Leave it out while listening on 127.0.0.1."),
    ROW("tls.key", TEXT, AT(tls_key), .at_start = true, .env = "ONCE_TLS_KEY", .flag = "tls-key",
        .example = "/etc/once/key.pem",
        .help = "PEM file with the private key of tls.cert. Only the server's user should be able "
                "to read it.",
        .unsure = "Set it if and only if tls.cert is set."),
    ROW("auth.tokens", OWN, .read = tokens_read, .count = offsetof(struct config, token_count),
        .help = "Who may do what. Each token names a tenant and has rights: execute (fences), "
                "operate (read and settle operations), audit (read operations and evidence), "
                "confirm (confirm commands). The file holds only the token's SHA-256; once token "
                "new creates both. A token for tenant \"*\" grants nothing except read access to "
                "/metrics for all tenants. Without auth, every client is tenant default with "
                "every right, which only loopback addresses allow. SIGHUP reads tokens again.",
        .unsure = "One token per program, with only execute."),
    ROW("secrets.key_file", LIST, AT(key_files), .count = offsetof(struct config, key_file_count),
        .max = CONFIG_KEY_FILES_MAX, .at_start = true, .env = "ONCE_SECRETS_KEY_FILE",
        .absent = "body.key in the journal's directory, created when it is first needed",
        .example = "[/etc/once/body.key, /etc/once/old.key]",
        .help = "Files with the keys that bodies are encrypted with while they wait to be sent: "
                "32 bytes or 64 hex digits each, mode 0600. The first key encrypts, all of them "
                "decrypt. To rotate, put the new file first, and remove the old one when nothing "
                "that it encrypted is left. Processes that share a store need the same files.",
        .unsure = "Leave it out with a journal, and back up body.key with it."),
    ROW("limits.body_bytes_max", SIZE, AT(body_bytes_max), .fallback = "10MiB", .min = 1024,
        .max = GIB, .env = "ONCE_LIMITS_BODY_BYTES_MAX",
        .help = "The largest request body; a larger one is refused with 413. Bodies in flight are "
                "held in memory. Raising it above its value at start needs a restart.",
        .unsure = "Leave it."),
    ROW("limits.outcome_bytes_max", SIZE, AT(outcome_bytes_max), .fallback = "16MiB",
        .max = LIMIT_OUTCOME_BYTES_MAX, .env = "ONCE_LIMITS_OUTCOME_BYTES_MAX",
        .help = "The largest outcome that is kept. A larger one is sealed without its bytes, and "
                "duplicates are answered accordingly. A smaller limit saves disk.",
        .unsure = "Leave it."),
    ROW("limits.in_flight_bytes_max", SIZE, AT(in_flight_bytes_max), .fallback = "256MiB",
        .min = MIB, .max = 1024 * GIB, .at_start = true, .env = "ONCE_LIMITS_IN_FLIGHT_BYTES_MAX",
        .help = "Memory for all request bodies being read or processed. Above it, requests get "
                "503.",
        .unsure = "A quarter of the memory the server may use."),
    ROW("limits.connections_max", COUNT, AT(connections_max), .fallback = "10000", .min = 1,
        .max = CONNECTIONS_MAX, .at_start = true, .env = "ONCE_LIMITS_CONNECTIONS_MAX",
        .help = "Concurrent connections; one more gets 503. Each needs a file descriptor, so "
                "ulimit -n must be higher.",
        .unsure = "Leave it."),
    ROW("limits.keys_max", COUNT, AT(keys_max), .fallback = "0", .max = UINT64_C(1) << 40,
        .at_start = true, .env = "ONCE_LIMITS_KEYS_MAX",
        .help = "Keys remembered at a time, at about 64 bytes of memory each. Above it, new keys "
                "are refused; old ones are never evicted. 0 means no limit.",
        .unsure = "Leave it at 0 and watch the memory."),
    ROW("limits.duplicate_rate", REAL, AT(duplicate_rate), .fallback = "20", .max = BURST_MAX,
        .env = "ONCE_LIMITS_DUPLICATE_RATE",
        .help = "Duplicates of one key answered per second. Above it they get 429 and are counted "
                "in the evidence. 0 means no limit.",
        .unsure = "Leave it: a well-behaved client backs off long before."),
    ROW("limits.duplicate_burst", REAL, AT(duplicate_burst), .fallback = "40", .min = 1,
        .max = BURST_MAX, .env = "ONCE_LIMITS_DUPLICATE_BURST",
        .help = "Duplicates of one key that may arrive at once before duplicate_rate applies.",
        .unsure = "Twice duplicate_rate."),
    ROW("limits.head_timeout", DURATION, AT(head_timeout_ms), .fallback = "10s", .min = 10,
        .max = HOUR_MS, .at_start = true, .env = "ONCE_LIMITS_HEAD_TIMEOUT",
        .help = "How long the head of a request may take from its first byte; then 408.",
        .unsure = "Leave it."),
    ROW("limits.body_timeout", DURATION, AT(body_timeout_ms), .fallback = "30s", .min = 10,
        .max = HOUR_MS, .at_start = true, .env = "ONCE_LIMITS_BODY_TIMEOUT",
        .help = "How long a body may take, plus one second for each KiB of it; then 408.",
        .unsure = "Leave it."),
    ROW("limits.idle_timeout", DURATION, AT(idle_timeout_ms), .fallback = "75s", .min = 10,
        .max = DAY_MS, .at_start = true, .env = "ONCE_LIMITS_IDLE_TIMEOUT",
        .help = "How long a connection may be silent between requests. Make it longer than the "
                "clients' or the proxy's own timeout, so that they close first.",
        .unsure = "Leave it."),
    ROW("limits.write_timeout", DURATION, AT(write_timeout_ms), .fallback = "30s", .min = 10,
        .max = HOUR_MS, .at_start = true, .env = "ONCE_LIMITS_WRITE_TIMEOUT",
        .help = "How long an answer may wait for a client that does not read it.",
        .unsure = "Leave it."),
    ROW("evidence.retain", DURATION, AT(retain_ms), .fallback = "400d", .min = HOUR_MS,
        .max = 36500 * DAY_MS, .at_start = true, .env = "ONCE_EVIDENCE_RETAIN",
        .help = "How long evidence is kept. A journal moves older segments to archive/, after an "
                "entry that records it; PostgreSQL and Redis remove older evidence for good. Live "
                "operations stay whatever their age.",
        .unsure = "Thirteen months: what auditors ask about."),
    ROW("evidence.checkpoint_every", DURATION, AT(checkpoint_every_ms), .fallback = "60s",
        .min = SECOND_MS, .max = DAY_MS, .at_start = true, .env = "ONCE_EVIDENCE_CHECKPOINT_EVERY",
        .help = "How often the head of the evidence is signed. A copy of a checkpoint kept "
                "elsewhere reveals a journal that was truncated before it.",
        .unsure = "Leave it."),
    ROW("evidence.replays", CHOICE, AT(replays), .fallback = "durable",
        .choices = {"durable", "soon"}, .at_start = true, .env = "ONCE_EVIDENCE_REPLAYS",
        .help =
            "When a replay is answered: durable, after its evidence entry is on disk, or "
            "soon, up to 10 ms before. With soon a crash may lose the entry of an answered "
            "duplicate, never an effect, a seal or a grant; the next start leaves an entry about "
            "it. It applies to the journal: shared stores are always durable.",
        .unsure = "Leave it at durable."),
    ROW("log.level", CHOICE, AT(log_level), .fallback = "info",
        .choices = {"debug", "info", "warn", "error"}, .at_start = true, .env = "ONCE_LOG_LEVEL",
        .flag = "log-level", .help = "The lowest level that is logged: debug, info, warn or error.",
        .unsure = "Leave it at info."),
    ROW("log.format", CHOICE, AT(log_format), .fallback = "auto",
        .choices = {"auto", "json", "human"}, .at_start = true, .env = "ONCE_LOG_FORMAT",
        .flag = "log-format",
        .help = "Format of the log on standard error: json, human, or auto, which is human on a "
                "terminal and json otherwise.",
        .unsure = "Leave it at auto."),
    ROW("log.decisions", BOOL, AT(log_decisions), .fallback = "true", .env = "ONCE_LOG_DECISIONS",
        .help = "Log a line for each decision. The evidence has every decision anyway; without "
                "these lines a busy server is a little faster and its log much smaller.",
        .unsure = "Leave it on until the log gets too large."),
    ROW("connectors", OWN, .read = connectors_read,
        .count = offsetof(struct config, effects.connector_count)),
    ROW("effects", OWN, .read = effects_read, .count = offsetof(struct config, effects.type_count)),
    ROW("gateway", OWN, .read = gateway_read),
    ROW("commands", OWN, .read = commands_read, .count = offsetof(struct config, command_count)),
    ROW("inbox.sources", OWN, .read = inbox_read_sources),
    ROW("inbox.queues", OWN, .read = inbox_read_queues),
    ROW("mcp.tools", OWN, .read = mcp_read_tools),
    {0},
};

static const struct config_option *find(const struct config_option *options, const char *path)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (strcmp(o->path, path) == 0) {
            return o;
        }
    }
    return NULL;
}

const struct config_option *config_option_find(const char *path)
{
    const struct config_option *option = find(config_options, path);
    return option != NULL ? option : find(config_gateway_options, path);
}
