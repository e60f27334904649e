/* How a sender confirms an endpoint: nothing of these requests is stored. */
#include "canon/json.h"
#include "inbox/impl.h"

static void answer_text(struct api_request *request, struct slice text)
{
    api_answer_begin(request, 200);
    api_answer_end(request, SLICE_LIT("text/plain"), text, false);
}

/* Meta: the token that was typed into its form, compared in constant time. */
void inbox_challenge(struct api_request *request)
{
    struct inbox_plan *plan = inbox_plan_take(request->state);
    const struct inbox_source *source = inbox_plan_find(plan, request->path_value);
    struct slice mode = SLICE_EMPTY, challenge = SLICE_EMPTY, token = SLICE_EMPTY;
    struct digest shown;
    bool is_whole = api_param(request, "hub.mode", &mode) &&
                    api_param(request, "hub.challenge", &challenge) &&
                    api_param(request, "hub.verify_token", &token);
    digest_sha256(token.data, token.len, &shown);
    if (source == NULL || source->preset->handshake != PRESET_HANDSHAKE_META) {
        api_refuse_plain(request, 404, "unknown_source", "there is no such source");
    } else if (!is_whole || !slice_is(mode, "subscribe") || !source->has_token ||
               !digest_equal_secret(&shown, &source->verify_token)) {
        api_refuse_plain(
            request, 403, "verify_token_invalid", "hub.verify_token is not the source's");
    } else {
        answer_text(request, challenge);
    }
    inbox_plan_drop(plan);
}

/* CloudEvents, HTTP 1.1 Web Hooks, section 4: every sender that asks is allowed. */
void inbox_preflight(struct api_request *request)
{
    struct inbox_plan *plan = inbox_plan_take(request->state);
    const struct inbox_source *source = inbox_plan_find(plan, request->path_value);
    struct slice origin = SLICE_EMPTY;
    if (source == NULL || source->preset->handshake != PRESET_HANDSHAKE_EVENTS) {
        api_refuse_plain(request, 404, "unknown_source", "there is no such source");
    } else if (!http_find_single(
                   request->exchange->head, SLICE_LIT("WebHook-Request-Origin"), &origin) ||
               origin.len == 0) {
        api_refuse_plain(
            request, 400, "invalid_handshake", "WebHook-Request-Origin must be given exactly once");
    } else {
        api_answer_begin(request, 200);
        http_answer_field(request->exchange, SLICE_LIT("Allow"), SLICE_LIT("POST, OPTIONS"));
        http_answer_field(request->exchange, SLICE_LIT("WebHook-Allowed-Origin"), origin);
        http_answer_field(request->exchange, SLICE_LIT("WebHook-Allowed-Rate"), SLICE_LIT("*"));
        api_answer_end(request, SLICE_EMPTY, SLICE_EMPTY, true);
    }
    inbox_plan_drop(plan);
}

/* Slack: {"type":"url_verification","challenge":"…"}, signed like any other request. */
bool inbox_verification(struct api_request *request, const struct inbox_source *source)
{
    const struct json_value *root = NULL;
    struct http_exchange *exchange = request->exchange;
    if (source->preset->handshake != PRESET_HANDSHAKE_SLACK ||
        json_read(exchange->body, exchange->arena, &root, NULL) != OK) {
        return false;
    }
    const struct json_value *type = json_find(root, SLICE_LIT("type"));
    const struct json_value *challenge = json_find(root, SLICE_LIT("challenge"));
    if (!json_is(type, JSON_STRING) || !slice_is(json_text(type), "url_verification") ||
        !json_is(challenge, JSON_STRING)) {
        return false;
    }
    answer_text(request, json_text(challenge));
    return true;
}
