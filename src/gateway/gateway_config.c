#include "gateway/gateway_config.h"

#include "base/check.h"
#include "base/secret.h"
#include "gateway/impl.h"
#include "http/chars.h"

enum { CREDENTIAL_BYTES_MAX = 16 << 10 }; /* no server takes a longer field */

/* ---- the end ------------------------------------------------------------------------------- */

static void credentials_free(struct gateway *gateway, struct gateway_config *config)
{
    for (size_t i = 0; config->credentials != NULL && i < config->settings->route_count; i++) {
        secret_release(&config->credentials[i]);
    }
    mem_free(gateway->mem, config->credentials);
}

static void upstreams_drop_all(struct gateway *gateway, struct gateway_config *config)
{
    for (size_t i = 0; config->upstreams != NULL && i <= config->settings->route_count; i++) {
        upstreams_drop(gateway->upstreams, config->upstreams[i]);
    }
    mem_free(gateway->mem, config->upstreams);
}

static void config_release(struct gateway *gateway, struct gateway_config *config)
{
    principals_free(config->principals);
    mem_free(gateway->mem, config->results);
    mem_free(gateway->mem, config->doubts);
    credentials_free(gateway, config);
    upstreams_drop_all(gateway, config);
    config_free(config->whole);
    mem_free(gateway->mem, config);
}

void gateway_config_drop(struct gateway *gateway, struct gateway_config *config)
{
    if (config == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&gateway->lock);
    ASSERT(config->holders > 0);
    bool is_last = --config->holders == 0;
    (void)pthread_mutex_unlock(&gateway->lock);
    if (is_last) {
        config_release(gateway, config);
    }
}

/* ---- the beginning ------------------------------------------------------------------------- */

static enum status hold_upstream(struct upstreams *all, const struct config_gateway *settings,
    const struct config_route *route, struct upstreams_one **ret_one, struct err *err)
{
    return upstreams_hold(all,
        &(struct upstreams_wanted){.urls = route->upstreams,
            .url_count = route->upstream_count,
            .ca_file = route->ca_file,
            .connections_max = (uint32_t)settings->connections_max,
            .idle_ms_max = settings->idle_ms_max},
        ret_one, err);
}

static enum status hold_upstreams(
    struct gateway *gateway, struct gateway_config *config, struct err *err)
{
    const struct config_gateway *settings = config->settings;
    struct upstreams *all = gateway->upstreams;
    size_t count = settings->route_count;
    enum status status = OK;
    config->upstreams = mem_zalloc(gateway->mem, count + 1, sizeof(struct upstreams_one *));
    if (config->upstreams == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    upstreams_load(all);
    for (size_t i = 0; status == OK && i < count; i++) {
        status = hold_upstream(all, settings, &settings->routes[i], &config->upstreams[i], err);
    }
    if (status == OK && settings->otherwise != NULL) {
        status = hold_upstream(all, settings, settings->otherwise, &config->upstreams[count], err);
    }
    return status;
}

/* The value of a header field. Anything else in the file would be sent too, or end the field. */
static enum status read_credential(const char *path, struct buf *out, struct err *err)
{
    static const char what[] = "authorization file";
    enum status status = secret_read(what, path, out, err);
    if (status != OK) {
        return status;
    }
    out->len = secret_line(buf_view(out)).len;
    for (size_t i = 0; i < out->len; i++) {
        if (!http_is(out->data[i], HTTP_VALUE)) {
            return err_set(err, E_INVALID, "%s '%s' is not one line of text", what, path);
        }
    }
    return out->len > 0 ? OK : err_set(err, E_INVALID, "%s '%s' is empty", what, path);
}

static enum status read_credentials(
    struct gateway *gateway, struct gateway_config *config, struct err *err)
{
    const struct config_gateway *settings = config->settings;
    enum status status = OK;
    config->credentials =
        mem_zalloc(gateway->mem, settings->route_count + 1, sizeof *config->credentials);
    if (config->credentials == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (size_t i = 0; status == OK && i < settings->route_count; i++) {
        const struct config_reconcile *reconcile = &settings->routes[i].reconcile;
        if (reconcile->get != NULL && reconcile->authorization_file != NULL) {
            buf_init(&config->credentials[i], gateway->mem, CREDENTIAL_BYTES_MAX);
            status = read_credential(reconcile->authorization_file, &config->credentials[i], err);
        }
    }
    return status;
}

/* On every route, the key of a request that was not sent is freed, and a request that was sent and
 * not answered completely is unknown (P5). */
static void read_rules(const struct config_route *route, struct route_results *results)
{
    static const enum judge_rule meanings[] = {[CONFIG_RESULT_SEAL] = JUDGE_SEAL,
        [CONFIG_RESULT_RELEASE] = JUDGE_RELEASE,
        [CONFIG_RESULT_UNKNOWN] = JUDGE_UNKNOWN};
    struct judge_rules *rules = &results->rules;
    *rules = (struct judge_rules){
        .statuses = results->statuses, .not_sent = JUDGE_RELEASE, .no_answer = JUDGE_UNKNOWN};
    for (size_t i = 0; i < route->on_status_count; i++) {
        const struct config_rule *rule = &route->on_status[i];
        enum judge_rule meaning = meanings[rule->result];
        if (rule->status < JUDGE_CLASSES) {
            rules->classes[rule->status] = meaning;
        } else {
            results->statuses[rules->status_count++] = (struct judge_status){rule->status, meaning};
        }
    }
}

static enum status read_results(
    struct gateway *gateway, struct gateway_config *config, struct err *err)
{
    const struct config_gateway *settings = config->settings;
    config->results = mem_zalloc(gateway->mem, settings->route_count + 1, sizeof *config->results);
    config->doubts = mem_zalloc(gateway->mem, settings->route_count + 1, sizeof *config->doubts);
    if (config->results == NULL || config->doubts == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < settings->route_count; i++) {
        read_rules(&settings->routes[i], &config->results[i]);
    }
    return OK;
}

enum status gateway_config_new(struct gateway *gateway, struct config *config,
    struct gateway_config **ret_config, struct err *err)
{
    struct gateway_config *made = mem_zalloc(gateway->mem, 1, sizeof *made);
    if (made == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    made->whole = config_hold(config);
    made->settings = &config->gateway;
    made->holders = 1;
    made->number = atomic_fetch_add(&gateway->configs, 1) + 1;
    enum status status = principals_new(gateway->mem, made->settings, &made->principals, err);
    status = status == OK ? read_results(gateway, made, err) : status;
    status = status == OK ? read_credentials(gateway, made, err) : status;
    status = status == OK ? hold_upstreams(gateway, made, err) : status;
    if (status != OK) {
        config_release(gateway, made);
        return status;
    }
    *ret_config = made;
    return OK;
}

struct gateway_config *gateway_config_take(struct gateway *gateway)
{
    (void)pthread_mutex_lock(&gateway->lock);
    struct gateway_config *config = gateway->config;
    config->holders++;
    (void)pthread_mutex_unlock(&gateway->lock);
    return config;
}

void gateway_config_hold(struct gateway *gateway, struct gateway_config *config)
{
    (void)pthread_mutex_lock(&gateway->lock);
    ASSERT(config->holders > 0);
    config->holders++;
    (void)pthread_mutex_unlock(&gateway->lock);
}

/* ---- use ----------------------------------------------------------------------------------- */

const struct config_route *gateway_config_route(const struct gateway_config *config,
    unsigned method, struct slice path, struct upstreams_one **ret_upstream)
{
    const struct config_gateway *settings = config->settings;
    size_t which = gateway_route(settings, method, path);
    *ret_upstream = config->upstreams[which];
    return which < settings->route_count ? &settings->routes[which] : settings->otherwise;
}

/* For a route that fences: `otherwise` does not. */
static size_t number_of(const struct gateway_config *config, const struct config_route *route)
{
    size_t number = (size_t)(route - config->settings->routes);
    ASSERT(number < config->settings->route_count);
    return number;
}

const struct judge_rules *gateway_config_rules(
    const struct gateway_config *config, const struct config_route *route)
{
    return &config->results[number_of(config, route)].rules;
}

bool gateway_config_is_first(const struct gateway_config *config, const struct config_route *route,
    enum principal_doubt doubt)
{
    atomic_uint *logged = &config->doubts[number_of(config, route)];
    unsigned bit = 1u << doubt;
    /* Read first: otherwise requests on every loop would write the same cache line. */
    return (atomic_load_explicit(logged, memory_order_relaxed) & bit) == 0 &&
           (atomic_fetch_or(logged, bit) & bit) == 0;
}

struct slice gateway_config_credential(
    const struct gateway_config *config, const struct config_route *route)
{
    return buf_view(&config->credentials[number_of(config, route)]);
}
