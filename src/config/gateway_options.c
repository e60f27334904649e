/* The table of all settings of the gateway. The example file is made from these words. */
#include <stddef.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "config/impl.h"

/* For the whole gateway; for a route; and for both: the default of every route that does not set
 * it. */
#define SECTION(member) .in = CONFIG_IN_SECTION, .offset = offsetof(struct config_gateway, member)
#define ROUTE(member)   .in = CONFIG_IN_ROUTE, .offset = offsetof(struct config_route, member)
#define BOTH(member)                                                                               \
    .in = CONFIG_IN_SECTION | CONFIG_IN_ROUTE, .offset = offsetof(struct config_route, member)
#define COUNTED(member) .count = offsetof(struct config_route, member)

enum {
    SECOND_MS = 1000,
    MINUTE_MS = 60 * SECOND_MS,
    HOUR_MS = 60 * MINUTE_MS,
    RATE_MAX = 1000000,
    CONNECTIONS_MAX = 65536,
};
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

const struct config_option config_gateway_options[] = {
    {.path = "gateway.listen",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_ADDRESS,
        SECTION(listen),
        .count = offsetof(struct config_gateway, listen_count),
        .fallback = "127.0.0.1:8080",
        .max = CONFIG_GATEWAY_LISTEN_MAX,
        .env = "ONCE_GATEWAY_LISTEN",
        .flag = "listen",
        .at_start = true,
        .help = "Where the gateway listens: an address and port, [IPv6]:port, unix:/path, or a "
                "list of these. Other machines may reach it: the API behind it still "
                "authenticates its clients, as before.",
        .unsure = "The API's old address; move the API to a new one."},
    {.path = "gateway.upstream",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_URL,
        BOTH(upstreams),
        COUNTED(upstream_count),
        .max = CONFIG_UPSTREAMS_MAX,
        .env = "ONCE_GATEWAY_UPSTREAM",
        .flag = "upstream",
        .example = "http://127.0.0.1:3000",
        .help = "The API behind the gateway: http:// or https:// with a host and port and no "
                "path, or a list of servers of the same API. The next one is tried only if no "
                "byte was sent to the first. Requests that match no route go to the first "
                "upstream of all, not fenced.",
        .unsure = "One, on the same machine or network."},
    {.path = "gateway.profile",
        .kind = CONFIG_CHOICE,
        BOTH(profile),
        .fallback = "ietf",
        .choices = {"ietf", "guardia", "adr007", "ops", "stripe"},
        .env = "ONCE_GATEWAY_PROFILE",
        .flag = "profile",
        .help =
            "Statuses and bodies of refusals, which methods are fenced, what a request "
            "without a key gets, and the window. ietf: the IETF's draft, problem documents. "
            "guardia: keys must be UUIDs, DELETE is not fenced. adr007: a request without a key "
            "runs under a new one. ops: keys are kept longer, conflicts show a diff. stripe: as "
            "Stripe's API, for its SDKs; POST only, no key means no fence. Explicit settings "
            "override the profile.",
        .unsure = "The one your clients are written for, else ietf."},
    {.path = "gateway.tls.cert",
        .kind = CONFIG_TEXT,
        SECTION(tls_cert),
        .at_start = true,
        .env = "ONCE_GATEWAY_TLS_CERT",
        .example = "/etc/once/gateway-cert.pem",
        .help = "PEM file with the certificate and its chain. If set, every TCP address of the "
                "gateway accepts only TLS. SIGHUP reads the file again.",
        .unsure = "Leave it out if a proxy in front terminates TLS."},
    {.path = "gateway.tls.key",
        .kind = CONFIG_TEXT,
        SECTION(tls_key),
        .at_start = true,
        .env = "ONCE_GATEWAY_TLS_KEY",
        .example = "/etc/once/gateway-key.pem",
        .help = "PEM file with the private key of gateway.tls.cert. Only the gateway's user "
                "should be able to read it.",
        .unsure = "Set it if and only if gateway.tls.cert is set."},
    {.path = "gateway.match",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_MATCH,
        ROUTE(match),
        .is_required = true,
        .example = "\"POST,PUT /v1/payments/**\"",
        .help = "Required in a route: methods separated by commas, a space, and a path; or only a "
                "path, which matches every method and fences those of the profile. In a path, '*' "
                "matches any characters within a segment and '**' any number of segments. Reads "
                "are never fenced, so read methods cannot be named.",
        .unsure = "Only a path."},
    {.path = "gateway.tenant",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_TENANT,
        BOTH(tenant),
        .fallback = "default",
        .help = "The tenant that owns these operations in the store, the evidence and the "
                "metrics. Tenants never see each other's data.",
        .unsure = "Leave it, unless several customers' APIs share one gateway."},
    {.path = "gateway.key",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_KEY,
        BOTH(key_text),
        .absent = "as the profile says",
        .example = "required",
        .help = "What happens to a write without Idempotency-Key: it is refused (required), runs "
                "under a new key that is echoed (generated), or passes through unprotected "
                "(optional). Or where the key is instead, for clients that send it elsewhere: "
                "{header: X-GitHub-Delivery} is a field, {json: /id} a JSON Pointer to a string or "
                "a whole number in the body. A write without it is refused. The API gets it as "
                "Idempotency-Key.",
        .unsure = "required: without a key, a retry can take effect twice."},
    {.path = "gateway.kind",
        .kind = CONFIG_CHOICE,
        BOTH(retention),
        .fallback = "api",
        .choices = {"api", "webhook", "batch"},
        .help = "The kind of traffic, which sets the default window: api uses the profile's, "
                "webhook 14d because senders retry for days, batch 3d.",
        .unsure = "api."},
    {.path = "gateway.window",
        .kind = CONFIG_DURATION,
        BOTH(window_ms),
        .absent = "as the profile and kind say",
        .min = SECOND_MS,
        .max = LIMIT_WINDOW_MS_MAX,
        .example = "24h",
        .help = "How long a key is remembered after its operation ended. guardia requires 2h to "
                "24h, ops 24h to 72h for kind api; kind webhook requires at least 7d under any "
                "profile. A longer window costs disk and memory for every key.",
        .unsure = "24h, the minimum that client libraries assume."},
    {.path = "gateway.lease",
        .kind = CONFIG_DURATION,
        BOTH(lease_ms),
        .fallback = "60s",
        .min = SECOND_MS,
        .max = LIMIT_LEASE_MS_MAX,
        .help = "If the gateway dies, how long until its operations become unknown.",
        .unsure = "timeout.total or a little more."},
    {.path = "gateway.wait",
        .kind = CONFIG_DURATION,
        BOTH(wait_ms),
        .fallback = "10s",
        .max = LIMIT_WAIT_MS_MAX,
        .help = "How long a duplicate waits for the answer to the first request while that is "
                "running; then it gets 409 and Retry-After. A client may ask for less with Prefer: "
                "wait. 0s: it never waits.",
        .unsure = "Leave it."},
    {.path = "gateway.stream",
        .kind = CONFIG_BOOL,
        BOTH(streams),
        .fallback = "false",
        .help =
            "true: the client gets every answer to a fenced request as it comes; it is "
            "sealed at its end. false: only answers of type text/event-stream are passed on like "
            "this. timeout.total bounds a stream, too.",
        .unsure = "Leave it; true for an API that streams in a different format."},
    {.path = "gateway.principal",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_PRINCIPAL,
        BOTH(principal_text),
        .fallback = "auto",
        .help =
            "Who a key belongs to; two principals may use the same key. auto: the SHA-256 of "
            "Authorization, else of X-Api-Key or Api-Key; all requests without them are one "
            "principal. authorization: only the first of these. header:X-Tenant: a field set by "
            "a trusted proxy. jwt:sub: a claim of a verified bearer token; it needs jwt and "
            "stays the same when tokens are renewed. none: all clients are one principal.",
        .unsure = "auto; jwt:sub if tokens are renewed, a header if clients have only cookies."},
    {.path = "gateway.jwt.alg",
        .kind = CONFIG_CHOICE,
        BOTH(jwt.alg),
        .choices = {"HS256", "RS256", "ES256"},
        .example = "RS256",
        .help = "How tokens are signed: HS256 with a shared secret, RS256 or ES256 with a public "
                "key. Tokens signed with a different algorithm are refused.",
        .unsure = "What the issuer uses; ES256 if you can choose."},
    {.path = "gateway.jwt.key_file",
        .kind = CONFIG_TEXT,
        BOTH(jwt.key_file),
        .example = "/etc/once/jwt.pem",
        .help = "File with the secret (HS256; a trailing newline is ignored) or the PEM public "
                "key.",
        .unsure = "Set it if and only if jwt.alg is set."},
    {.path = "gateway.jwt.issuer",
        .kind = CONFIG_TEXT,
        BOTH(jwt.issuer),
        .example = "https://login.example.com",
        .help = "Tokens with a different iss are refused. If not set, any issuer with that key is "
                "accepted.",
        .unsure = "Set it."},
    {.path = "gateway.jwt.audience",
        .kind = CONFIG_TEXT,
        BOTH(jwt.audience),
        .example = "payments",
        .help = "Tokens whose aud does not contain this are refused. If not set, tokens for other "
                "services are accepted.",
        .unsure = "Set it."},
    {.path = "gateway.ignore",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_POINTER,
        BOTH(ignore),
        COUNTED(ignore_count),
        .max = CONFIG_POINTERS_MAX,
        .example = "[/client_time]",
        .help = "JSON Pointers to members of the body that may differ between two attempts of one "
                "operation. Any other difference is a conflict. A route's list replaces the "
                "section's.",
        .unsure = "Leave it out until conflicts show what your clients change."},
    {.path = "gateway.redact",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_POINTER,
        BOTH(redact),
        COUNTED(redact_count),
        .max = CONFIG_POINTERS_MAX,
        .example = "[/card/number]",
        .help = "JSON Pointers to members of the body that are never stored and never shown in a "
                "diff. A difference in them is still a conflict. A route's list replaces the "
                "section's.",
        .unsure = "Everything that does not belong in a log."},
    {.path = "gateway.replay_headers",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_FIELD,
        BOTH(replay_headers),
        COUNTED(replay_header_count),
        .max = CONFIG_FIELDS_MAX,
        .absent = "every field",
        .example = "[X-Payment-Id]",
        .help = "Fields of an answer that a replay repeats. By default all except those that "
                "belong to one exchange: Set-Cookie, Date, Age, Server-Timing, RateLimit*, "
                "X-RateLimit* and hop-by-hop fields. A list narrows it to these and the usual ones "
                "(Content-Type and the like, Location, ETag, Link, Cache-Control, Vary); [] to the "
                "usual ones only. Set-Cookie is never kept. A route's list replaces the section's.",
        .unsure = "Leave it out."},
    {.path = "gateway.cors.origins",
        .kind = CONFIG_LIST,
        .form = CONFIG_FORM_ORIGIN,
        BOTH(cors_origins),
        COUNTED(cors_origin_count),
        .max = CONFIG_ORIGINS_MAX,
        .example = "[https://shop.example]",
        .help =
            "Origins of web pages that call the API through this gateway, or \"*\" for any. "
            "The gateway's own refusals and its replays then have the Access-Control fields that "
            "a browser needs to show them to the page, and every answer to a fenced request "
            "exposes the gateway's own fields. Preflight requests still go to the API: it must "
            "allow Idempotency-Key. A route's list replaces the section's.",
        .unsure = "Leave it out unless browsers call the API directly."},
    {.path = "gateway.cors.credentials",
        .kind = CONFIG_BOOL,
        BOTH(cors_credentials),
        .fallback = "false",
        .help = "Whether these pages send cookies or HTTP authentication. Not together with "
                "\"*\".",
        .unsure = "As the API answers: true if it sends Access-Control-Allow-Credentials."},
    {.path = "gateway.on_status",
        .kind = CONFIG_RULES,
        BOTH(on_status),
        COUNTED(on_status_count),
        .absent = "as the profile says",
        .choices = {"seal", "release", "unknown"},
        .max = CONFIG_RULES_MAX - CONFIG_RULES_DEFAULT,
        .env = "ONCE_GATEWAY_ON_STATUS",
        .flag = "on-status",
        .example = "{5xx: unknown, 503: release}",
        .help =
            "What an answer means, by its status or its class (5xx); a rule for a status "
            "overrides the rule for its class. seal: it is final, and every duplicate gets it. "
            "release: the API did nothing or rolled back, so the client may try again. unknown: "
            "nobody knows whether anything was done, so no retry runs until it is settled. A "
            "rule set here overrides the defaults of its status or class: 2xx, 3xx and 4xx are "
            "sealed; 408, 425, 429 and 503 are released; other 5xx are unknown (profile stripe: "
            "sealed). A route's map replaces the section's.",
        .unsure = "Leave it; {5xx: release} only if the API rolls back before it answers 5xx."},
    {.path = "gateway.on_5xx",
        .kind = CONFIG_OWN,
        .in = CONFIG_IN_SECTION | CONFIG_IN_ROUTE,
        .offset = offsetof(struct config_route, on_status),
        .read = gateway_read_on_5xx},
    {.path = "gateway.on_unknown",
        .kind = CONFIG_CHOICE,
        BOTH(on_unknown),
        .fallback = "hold",
        .choices = {"hold", "takeover", "reconcile"},
        .help = "What a duplicate gets if a request was sent and no answer came. hold: it is "
                "refused until somebody settles the operation. reconcile: the gateway asks the "
                "API (see reconcile). takeover: it runs, and the effect may happen twice.",
        .unsure = "hold, or reconcile if the API can be asked."},
    {.path = "gateway.reconcile.get",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_TEMPLATE,
        BOTH(reconcile.get),
        .example = "/v1/payments/by-key/{key}",
        .help = "Path (and query, if needed) of a GET that says whether the operation of a key "
                "was executed. {key} is the key, percent-encoded. {operation_id} is "
                "Once-Operation-Id, which distinguishes two principals with the same key.",
        .unsure = "Leave it out if the API has no such path."},
    {.path = "gateway.reconcile.executed",
        .kind = CONFIG_STATUSES,
        BOTH(reconcile.executed),
        COUNTED(reconcile.executed_count),
        .fallback = "200",
        .max = CONFIG_STATUSES_MAX,
        .help = "Statuses of that GET that mean executed. The answer becomes the outcome.",
        .unsure = "Leave it."},
    {.path = "gateway.reconcile.not_executed",
        .kind = CONFIG_STATUSES,
        BOTH(reconcile.not_executed),
        COUNTED(reconcile.not_executed_count),
        .max = CONFIG_STATUSES_MAX,
        .example = "404",
        .help = "Statuses of that GET that mean: not executed, and it never will be. The key is "
                "then free. Any other status settles nothing, and the gateway asks again later.",
        .unsure = "404, if the API answers it only when no running request can still finish."},
    {.path = "gateway.reconcile.authorization_file",
        .kind = CONFIG_TEXT,
        BOTH(reconcile.authorization_file),
        .example = "/etc/once/reconcile-authorization",
        .help = "File with the value of the Authorization field of that GET. Clients' credentials "
                "are never kept and cannot be used.",
        .unsure = "A read-only token."},
    {.path = "gateway.reconcile.every",
        .kind = CONFIG_DURATION,
        BOTH(reconcile.every_ms),
        .fallback = "1s",
        .min = 10,
        .max = HOUR_MS,
        .help = "Pause before that GET is repeated; each pause is twice the one before.",
        .unsure = "Leave it."},
    {.path = "gateway.reconcile.every_max",
        .kind = CONFIG_DURATION,
        BOTH(reconcile.every_ms_max),
        .fallback = "5m",
        .min = 10,
        .max = UINT64_C(24) * HOUR_MS,
        .help = "The longest such pause.",
        .unsure = "Leave it."},
    {.path = "gateway.reconcile.quiet",
        .kind = CONFIG_DURATION,
        BOTH(reconcile.quiet_ms),
        .max = UINT64_C(24) * HOUR_MS,
        .absent = "timeout.total",
        .example = "60s",
        .help = "How long an operation must have been unknown before not_executed is accepted. "
                "Until then the first attempt may still be running without the API knowing of it, "
                "and a second one would double the effect.",
        .unsure = "Leave it; 0s only if the API records a request before it starts work on it."},
    {.path = "gateway.timeout.connect",
        .kind = CONFIG_DURATION,
        BOTH(connect_ms),
        .fallback = "2s",
        .min = 1,
        .max = HOUR_MS,
        .help = "How long connecting to the API may take. After that nothing was done: 502, and "
                "the client may try again.",
        .unsure = "Leave it."},
    {.path = "gateway.timeout.first_byte",
        .kind = CONFIG_DURATION,
        BOTH(first_byte_ms),
        .fallback = "30s",
        .min = 1,
        .max = HOUR_MS,
        .help = "How long the first byte of the answer may take after the last byte of the "
                "request. After that nobody knows what was done: 504, and the operation is "
                "unknown.",
        .unsure = "Longer than the API's own limit for its slowest write."},
    {.path = "gateway.timeout.total",
        .kind = CONFIG_DURATION,
        BOTH(total_ms),
        .fallback = "60s",
        .min = 1,
        .max = UINT64_C(24) * HOUR_MS,
        .help = "How long a fenced request may take in all. After that the operation is unknown.",
        .unsure = "Leave it."},
    {.path = "gateway.timeout.upgraded",
        .kind = CONFIG_DURATION,
        BOTH(upgraded_ms),
        .fallback = "5m",
        .min = 1,
        .max = UINT64_C(24) * HOUR_MS,
        .help = "How long a WebSocket may be silent in both directions. After that it is closed.",
        .unsure = "Longer than the time between two pings of the application."},
    {.path = "gateway.limits.body_bytes_max",
        .kind = CONFIG_SIZE,
        BOTH(body_bytes_max),
        .absent = "as limits.body_bytes_max",
        .min = 1,
        .max = GIB,
        .example = "10MiB",
        .help = "The largest body of a fenced request; a larger one is refused with 413. Bodies "
                "above spool_memory are kept in a file. Requests that are not fenced stream "
                "through, whatever their size.",
        .unsure = "Leave it."},
    {.path = "gateway.limits.outcome_bytes_max",
        .kind = CONFIG_SIZE,
        BOTH(outcome_bytes_max),
        .absent = "as limits.outcome_bytes_max",
        .max = LIMIT_OUTCOME_BYTES_MAX,
        .example = "16MiB",
        .help = "The largest answer that is kept. The first client gets a larger one in full; "
                "duplicates get 410, which says that it was executed.",
        .unsure = "Leave it."},
    {.path = "gateway.limits.duplicate_rate",
        .kind = CONFIG_REAL,
        BOTH(duplicate_rate),
        .absent = "as limits.duplicate_rate",
        .max = RATE_MAX,
        .example = "20",
        .help = "Duplicates of one key answered per second; above it they get 429. 0 means no "
                "limit.",
        .unsure = "Leave it."},
    {.path = "gateway.limits.duplicate_burst",
        .kind = CONFIG_REAL,
        BOTH(duplicate_burst),
        .absent = "as limits.duplicate_burst",
        .min = 1,
        .max = RATE_MAX,
        .example = "40",
        .help = "Duplicates of one key that may arrive at once before duplicate_rate applies.",
        .unsure = "Twice duplicate_rate."},
    {.path = "gateway.ca_file",
        .kind = CONFIG_TEXT,
        BOTH(ca_file),
        .absent = "the system's",
        .example = "/etc/once/upstream-ca.pem",
        .help = "PEM file with the certificate authorities for https upstreams. Certificates are "
                "always verified.",
        .unsure = "Leave it out unless the API uses a private authority."},
    {.path = "gateway.preserve_host",
        .kind = CONFIG_BOOL,
        BOTH(preserve_host),
        .fallback = "false",
        .help =
            "Whether the API gets the Host that the client sent, for APIs that serve several "
            "host names or build links from it. By default it gets the host of upstream, and the "
            "client's in X-Forwarded-Host. A reconcile question always has the host of upstream, "
            "and certificates are always checked against it.",
        .unsure = "Leave it."},
    {.path = "gateway.health",
        .kind = CONFIG_TEXT,
        .form = CONFIG_FORM_PATH,
        SECTION(health),
        .env = "ONCE_GATEWAY_HEALTH",
        .example = "/healthz",
        .help =
            "A path that the gateway answers itself, for a load balancer: 200 when it would "
            "serve requests, 503 or no answer when it would not. The API never sees it, whatever "
            "the method, so it must not be a path of the API.",
        .unsure = "Leave it out unless something checks the gateway's port."},
    {.path = "gateway.spool_dir",
        .kind = CONFIG_TEXT,
        SECTION(spool_dir),
        .absent = "the store's directory, or /tmp",
        .at_start = true,
        .env = "ONCE_GATEWAY_SPOOL_DIR",
        .example = "/var/tmp",
        .help = "Directory for bodies that do not fit in memory. The files have no name and "
                "disappear with the process.",
        .unsure = "Leave it."},
    {.path = "gateway.spool_memory",
        .kind = CONFIG_SIZE,
        SECTION(spool_memory_bytes),
        .fallback = "256KiB",
        .max = GIB,
        .env = "ONCE_GATEWAY_SPOOL_MEMORY",
        .help = "How much of one body or answer is held in memory before a file is used. More is "
                "faster for large bodies, and every request in flight may use it.",
        .unsure = "Leave it."},
    {.path = "gateway.spool_max",
        .kind = CONFIG_SIZE,
        SECTION(spool_bytes_max),
        .fallback = "1GiB",
        .min = 1 << 20,
        .env = "ONCE_GATEWAY_SPOOL_MAX",
        .help = "Bytes of all bodies and answers in flight, in memory and in files. Above it, "
                "requests are refused with 503, and answers are sealed without their body.",
        .unsure = "Leave it."},
    {.path = "gateway.connections_max",
        .kind = CONFIG_COUNT,
        SECTION(connections_max),
        .fallback = "256",
        .min = 1,
        .max = CONNECTIONS_MAX,
        .env = "ONCE_GATEWAY_CONNECTIONS_MAX",
        .help =
            "Connections to one upstream, per loop. Above it, requests wait for one. A loop that "
            "has most of them in use counts as busy: with loops: 0, one more serves.",
        .unsure = "What the API can serve at a time, divided by the number of loops."},
    {.path = "gateway.idle",
        .kind = CONFIG_DURATION,
        SECTION(idle_ms_max),
        .fallback = "4s",
        .max = HOUR_MS,
        .env = "ONCE_GATEWAY_IDLE",
        .help = "How long an idle connection to the API is kept. It must be shorter than the "
                "API's own keep-alive time; otherwise the API may close a connection just as a "
                "request is sent, and that request is unknown. 0s: connections are not kept.",
        .unsure = "Less than the API's keep-alive time, which is often 5s."},
    {.path = "gateway.routes",
        .kind = CONFIG_OWN,
        .in = CONFIG_IN_SECTION,
        .read = gateway_read_routes},
    {0},
};

static_assert(COUNT(config_gateway_options) <= GATEWAY_OPTIONS_MAX, "each row has a source");
