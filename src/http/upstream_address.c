#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/address.h"
#include "http/impl.h"
#include "http/upstream_impl.h"

/* -------------------------------------------------------------------------------------- URLs -- */

/* Where the host ends: at the last colon after any bracket, if there is one. */
static size_t host_len(struct slice authority)
{
    size_t at = authority.len;
    while (at > 0 && authority.data[at - 1] != ':' && authority.data[at - 1] != ']') {
        at--;
    }
    return at > 0 && authority.data[at - 1] == ':' ? at - 1 : authority.len;
}

static bool read_port(struct slice text, bool is_tls, uint16_t *ret_port)
{
    uint64_t port = is_tls ? 443 : 80;
    if (text.len > 0 && (!text_u64(text, &port) || port == 0 || port > UINT16_MAX)) {
        return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

static void read_numeric(struct upstream_url *url)
{
    url->is_numeric = uv_ip4_addr(url->host, url->port, &url->socket.v4) == 0 ||
                      uv_ip6_addr(url->host, url->port, &url->socket.v6) == 0;
}

static enum status wrong(struct err *err, const char *text, const char *why)
{
    return err_set(err, E_INVALID, "upstream '%s' is not a URL of an origin: %s", text, why);
}

enum status upstream_url_parse(const struct mem *mem, const char *text,
    struct upstream_url *ret_url, bool *ret_is_tls, struct err *err)
{
    struct slice rest = slice_str(text);
    size_t scheme = http_scheme(rest, ret_is_tls);
    if (scheme == 0) {
        return wrong(err, text, "it does not begin with 'http://' or 'https://'");
    }
    rest = slice_of(rest.data + scheme, rest.len - scheme);
    size_t len = strcspn(rest.data, "/?#");
    if (len < rest.len && !(rest.data[len] == '/' && len + 1 == rest.len)) {
        return wrong(err, text, "it has a path, a query or a fragment");
    }
    struct slice authority = slice_of(rest.data, len);
    if (!http_is_authority(authority)) {
        return wrong(err, text, "its authority is not a host with an optional port");
    }
    len = host_len(authority);
    struct slice host = slice_of(authority.data, len);
    size_t colon = len < authority.len ? 1 : 0;
    struct upstream_url url = {.port = 0};
    if (!read_port(slice_of(authority.data + len + colon, authority.len - len - colon), *ret_is_tls,
            &url.port)) {
        return wrong(err, text, "its port is not in 1 to 65535");
    }
    if (host.len > 2 && host.data[0] == '[') {
        host = slice_of(host.data + 1, host.len - 2);
    }
    url.authority = mem_copy_text(mem, authority);
    url.host = mem_copy_text(mem, host);
    if (url.authority == NULL || url.host == NULL) {
        upstream_url_release(mem, &url);
        return err_set(err, E_NOMEM, "out of memory");
    }
    read_numeric(&url);
    *ret_url = url;
    return OK;
}

void upstream_url_release(const struct mem *mem, struct upstream_url *url)
{
    mem_free(mem, url->authority);
    mem_free(mem, url->host);
    *url = (struct upstream_url){.port = 0};
}

/* ------------------------------------------------------------------------------------ health -- */

static void set_backoff(
    struct upstream_worker *worker, struct upstream_address *address, uint32_t backoff_ms)
{
    bool was_down = address->backoff_ms > 0;
    bool is_down = backoff_ms > 0;
    address->backoff_ms = backoff_ms;
    address->down_until_ms = is_down ? upstream_now(worker) + backoff_ms : 0;
    upstream_count(&worker->stats.down, (uint64_t)is_down - (uint64_t)was_down);
}

void upstream_address_trying(struct upstream_worker *worker, struct upstream_address *address)
{
    if (address->backoff_ms > 0) {
        set_backoff(worker, address, address->backoff_ms);
    }
}

void upstream_address_went_well(struct upstream_worker *worker, struct upstream_address *address)
{
    set_backoff(worker, address, 0);
}

void upstream_address_failed(struct upstream_worker *worker, struct upstream_address *address)
{
    int64_t backoff_ms = address->backoff_ms == 0
                             ? UPSTREAM_BACKOFF_MS_MIN
                             : clock_doubled_ms(address->backoff_ms, UPSTREAM_BACKOFF_MS_MAX);
    set_backoff(worker, address, (uint32_t)backoff_ms);
}

/* ------------------------------------------------------------------------------------ lookup -- */

static bool same_socket(const union upstream_socket *a, const union upstream_socket *b)
{
    if (a->any.sa_family != b->any.sa_family) {
        return false;
    }
    if (a->any.sa_family == AF_INET) {
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr && a->v4.sin_port == b->v4.sin_port;
    }
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0 &&
           a->v6.sin6_port == b->v6.sin6_port && a->v6.sin6_scope_id == b->v6.sin6_scope_id;
}

static void put_text(struct upstream_address *address)
{
    char ip[INET6_ADDRSTRLEN] = "";
    bool is_v4 = address->socket.any.sa_family == AF_INET;
    int rc = is_v4 ? uv_ip4_name(&address->socket.v4, ip, sizeof ip)
                   : uv_ip6_name(&address->socket.v6, ip, sizeof ip);
    ASSERT(rc == 0); /* the room is for the longest */
    unsigned port = ntohs(is_v4 ? address->socket.v4.sin_port : address->socket.v6.sin6_port);
    (void)snprintf(address->text, sizeof address->text, is_v4 ? "%s:%u" : "[%s]:%u", ip, port);
}

/* The place of an address in the table, made if it has none; NULL: the table is full. */
static struct upstream_address *place_of(
    struct upstream_worker *worker, unsigned url, const union upstream_socket *socket)
{
    struct upstream_address *free = NULL;
    for (unsigned i = 0; i < worker->places; i++) {
        struct upstream_address *at = &worker->addresses[i];
        if (at->url == url && same_socket(&at->socket, socket)) {
            return at;
        }
        if (free == NULL && !at->is_known && at->conns == 0) {
            free = at;
        }
    }
    if (free == NULL && worker->places < UPSTREAM_ADDRESSES_MAX) {
        free = &worker->addresses[worker->places++];
    }
    if (free != NULL) {
        set_backoff(worker, free, 0);
        *free = (struct upstream_address){.socket = *socket, .url = url};
        put_text(free);
    }
    return free;
}

static void know(struct upstream_worker *worker, unsigned url, const union upstream_socket *socket)
{
    struct upstream_address *address = place_of(worker, url, socket);
    if (address != NULL) {
        address->is_known = true;
    }
}

/* Otherwise a person who controls a name could reach an internal network through us. */
static bool may_use(
    const struct upstream *upstream, unsigned url, const union upstream_socket *socket)
{
    return !upstream->is_public_only || address_is_public(&socket->any) ||
           (address_is_loopback(&socket->any) &&
               http_same_name(slice_str(upstream->urls[url].host), SLICE_LIT("localhost")));
}

/* Connections to addresses that the name no longer has are not used again. */
static void close_unknown(struct upstream_worker *worker)
{
    for (struct upstream_conn *at = worker->idle.idle_next, *next = NULL; at != &worker->idle;
         at = next) {
        next = at->idle_next;
        if (!at->address->is_known) {
            upstream_conn_close(at);
        }
    }
}

/* False: the name has only addresses that may not be used. */
static bool take_addresses(struct upstream_lookup *lookup, const struct addrinfo *found)
{
    struct upstream_worker *worker = lookup->worker;
    unsigned used = 0;
    for (unsigned i = 0; i < worker->places; i++) {
        if (worker->addresses[i].url == lookup->url) {
            worker->addresses[i].is_known = false;
        }
    }
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        union upstream_socket socket = {.any.sa_family = AF_UNSPEC};
        if ((at->ai_family == AF_INET || at->ai_family == AF_INET6) &&
            at->ai_addrlen <= sizeof socket) {
            memcpy(&socket, at->ai_addr, at->ai_addrlen);
            if (may_use(worker->upstream, lookup->url, &socket)) {
                know(worker, lookup->url, &socket);
                used++;
            }
        }
    }
    close_unknown(worker);
    return used > 0;
}

static void on_looked_up(uv_getaddrinfo_t *request, int rc, struct addrinfo *found)
{
    struct upstream_lookup *lookup = request->data;
    struct upstream_worker *worker = lookup->worker;
    lookup->is_under_way = false;
    if (worker->is_detached) {
        uv_freeaddrinfo(found);
        return;
    }
    bool is_well = rc == 0 && found != NULL;
    lookup->failure = is_well ? NULL : rc == 0 ? "it has no address" : uv_strerror(rc);
    lookup->again_ms = upstream_now(worker) + (is_well ? (uint64_t)worker->upstream->resolve_ms
                                                       : UPSTREAM_LOOKUP_AGAIN_MS);
    if (is_well && !take_addresses(lookup, found)) {
        lookup->failure = "its addresses are private (allow_internal)";
    }
    uv_freeaddrinfo(found);
    upstream_wake_waiting(worker);
}

/* Look the name up if it is time; meanwhile the addresses that are known stay in use. */
static void look_up(struct upstream_lookup *lookup)
{
    struct upstream_worker *worker = lookup->worker;
    const struct upstream_url *url = &worker->upstream->urls[lookup->url];
    if (url->is_numeric || lookup->is_under_way || upstream_now(worker) < lookup->again_ms) {
        return;
    }
    char port[8];
    (void)snprintf(port, sizeof port, "%u", url->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    lookup->request.data = lookup;
    int rc =
        uv_getaddrinfo(&worker->loop->uv, &lookup->request, on_looked_up, url->host, port, &hints);
    lookup->is_under_way = rc == 0;
    if (rc != 0) {
        lookup->failure = uv_strerror(rc);
        lookup->again_ms = upstream_now(worker) + UPSTREAM_LOOKUP_AGAIN_MS;
    }
}

void upstream_addresses_attach(struct upstream_worker *worker)
{
    for (unsigned i = 0; i < worker->upstream->url_count; i++) {
        const struct upstream_url *url = &worker->upstream->urls[i];
        worker->lookups[i].worker = worker;
        worker->lookups[i].url = i;
        if (url->is_numeric) {
            know(worker, i, &url->socket);
        } else {
            look_up(&worker->lookups[i]);
        }
    }
}

void upstream_addresses_detach(struct upstream_worker *worker)
{
    for (unsigned i = 0; i < worker->upstream->url_count; i++) {
        if (worker->lookups[i].is_under_way) {
            (void)uv_cancel((uv_req_t *)&worker->lookups[i].request); /* or it ends by itself */
        }
    }
}

/* ------------------------------------------------------------------------------------ choice -- */

/* What an address has to be, strictest first. */
enum address_choice { UP_AND_UNTRIED, UNTRIED, UP, ANY, ADDRESS_CHOICES };

static bool is_wanted(const struct upstream_worker *worker, const struct upstream_call *call,
    unsigned place, enum address_choice wanted)
{
    const struct upstream_address *address = &worker->addresses[place];
    bool is_tried = (call->exchange->tried >> place & 1) != 0;
    bool is_down = address->down_until_ms > upstream_now(worker);
    return address->is_known && !(is_tried && wanted <= UNTRIED) &&
           !(is_down && (wanted == UP_AND_UNTRIED || wanted == UP));
}

/* The next one of a URL that is wanted; each URL takes turns over its own. */
static struct upstream_address *next_of_url(struct upstream_worker *worker,
    const struct upstream_call *call, unsigned url, enum address_choice how)
{
    struct upstream_lookup *lookup = &worker->lookups[url];
    for (unsigned i = 0; i < worker->places; i++) {
        unsigned place = (lookup->next + i) % worker->places;
        if (worker->addresses[place].url == url && is_wanted(worker, call, place, how)) {
            lookup->next = place + 1;
            return &worker->addresses[place];
        }
    }
    return NULL;
}

static struct upstream_address *next_of_all(
    struct upstream_worker *worker, const struct upstream_call *call, enum address_choice how)
{
    unsigned count = worker->upstream->url_count;
    for (unsigned i = 0; i < count; i++) {
        unsigned url = (worker->next_url + i) % count;
        struct upstream_address *address = next_of_url(worker, call, url, how);
        if (address != NULL) {
            worker->next_url = (url + 1) % count;
            return address;
        }
    }
    return NULL;
}

static unsigned known_count(const struct upstream_worker *worker)
{
    unsigned known = 0;
    for (unsigned i = 0; i < worker->places; i++) {
        known += worker->addresses[i].is_known ? 1 : 0;
    }
    return known;
}

enum upstream_pick upstream_address_pick(struct upstream_worker *worker,
    const struct upstream_call *call, struct upstream_address **ret_address,
    const char **ret_failure)
{
    bool is_under_way = false;
    for (unsigned i = 0; i < worker->upstream->url_count; i++) {
        look_up(&worker->lookups[i]);
        is_under_way = is_under_way || worker->lookups[i].is_under_way;
        *ret_failure =
            worker->lookups[i].failure == NULL ? *ret_failure : worker->lookups[i].failure;
    }
    unsigned known = known_count(worker);
    if (known == 0) {
        return is_under_way ? UPSTREAM_PICK_LATER : UPSTREAM_PICK_NONE;
    }
    if (call->tries >= (known > UPSTREAM_TRIES_MIN ? known : UPSTREAM_TRIES_MIN)) {
        return UPSTREAM_PICK_NONE;
    }
    for (enum address_choice how = UP_AND_UNTRIED; how < ADDRESS_CHOICES; how++) {
        struct upstream_address *address = next_of_all(worker, call, how);
        if (address != NULL) {
            *ret_address = address;
            return UPSTREAM_PICKED;
        }
    }
    return UPSTREAM_PICK_NONE;
}
