/* What a finished call means for its record. Pure, and apart from the call itself: a simulator has
 * calls of its own. */
#include "outcall/outcall.h"

void outcall_settle(const struct outcall *call, struct request *request, struct slice *ret_body)
{
    *ret_body = SLICE_EMPTY;
    request->reason = slice_str(call->reason);
    switch (call->verdict) {
    case VERDICT_EXECUTED:
    case VERDICT_FAILED:
        request->kind = REQUEST_SEAL;
        request->status = call->verdict == VERDICT_EXECUTED ? RECORD_EXECUTED : RECORD_FAILED;
        request->effect_id = call->effect_id;
        request->outcome =
            (struct outcome){.code = (int32_t)call->status, .meta = call->meta, .body = call->ref};
        *ret_body = call->ref.retained ? call->captured : SLICE_EMPTY;
        break;
    case VERDICT_RELEASED: request->kind = REQUEST_RELEASE; break;
    case VERDICT_UNKNOWN: request->kind = REQUEST_UNKNOWN; break;
    case VERDICT_LATER: request->kind = REQUEST_RETRY; break;
    }
}
