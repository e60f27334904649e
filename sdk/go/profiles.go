package once

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The gateway's profiles (docs/gateway.md), as far as a handler's own server can have them: which
// requests need a key, what a key looks like, how refusals are written. The cases are in
// tests/vectors/sdk/profiles.json.

type profile struct {
	methods        []string
	missing        string // a request without a key: refuse, generate, pass
	isUUID         bool   // keys are UUIDs
	isLoose        bool   // any printable text is a key
	conflictStatus int
	isSealed5xx    bool // 5xx are sealed; 503 is released all the same
	ttl            time.Duration
	ttlMin, ttlMax time.Duration // 0: any
	form           func(*refusing) object
}

var writes = []string{"POST", "PUT", "PATCH", "DELETE"}

var profiles = map[string]*profile{
	"ietf": {methods: writes, missing: "refuse", conflictStatus: 422, form: formProblem},
	"guardia": {methods: []string{"POST", "PUT", "PATCH"}, missing: "refuse", isUUID: true,
		conflictStatus: 409, ttl: 24 * time.Hour, ttlMin: 2 * time.Hour, ttlMax: 24 * time.Hour,
		form: formGuardia},
	"adr007": {methods: writes, missing: "generate", conflictStatus: 409, form: formADR007},
	"ops": {methods: writes, missing: "refuse", conflictStatus: 409, ttl: 48 * time.Hour,
		ttlMin: 24 * time.Hour, ttlMax: 72 * time.Hour, form: formProblem},
	"stripe": {methods: []string{"POST"}, missing: "pass", isLoose: true, conflictStatus: 400,
		isSealed5xx: true, form: formStripe},
}

// refusalForm is one kind of refusal: what all profiles share, and the words of those with their
// own.
type refusalForm struct {
	status                    int
	effect                    Effect
	retry                     string
	kind                      string // the type of the error member
	guardiaCode, guardiaCause string
	text                      string
}

var refusalForms = map[string]refusalForm{
	"idempotency_key_missing": {400, EffectNo, "no", "invalid_request_error",
		"ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REQUIRED",
		"the Idempotency-Key field is missing; nothing was done"},
	"idempotency_key_invalid": {400, EffectNo, "no", "invalid_request_error",
		"ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID",
		"the Idempotency-Key field is not well formed; nothing was done"},
	"body_too_large": {413, EffectNo, "no", "invalid_request_error",
		"ERR413_CONTENT_TOO_LARGE", "BODY_TOO_LARGE",
		"the body is too long to be fenced; nothing was done"},
	"idempotency_conflict": {422, EffectNo, "no", "idempotency_error",
		"ERR409_CONFLICT", "CONFLICTING_IDEMPOTENT_REQUEST",
		"the idempotency key was used with a different request; nothing was done"},
	"in_progress": {409, EffectUnknown, "after", "invalid_request_error",
		"ERR409_CONFLICT", "IDEMPOTENT_REQUEST_IN_PROGRESS",
		"the first request with this idempotency key is still running; ask again with the same key"},
	"outcome_unknown": {409, EffectUnknown, "no", "api_error",
		"ERR409_CONFLICT", "OUTCOME_UNKNOWN",
		"nobody knows whether the effect happened; the operation is held until it is settled"},
	"outcome_not_retained": {410, EffectYes, "no", "api_error",
		"ERR410_GONE", "OUTCOME_NOT_RETAINED",
		"it was executed, and its answer was too large to be kept"},
	"too_many_duplicates": {429, EffectNo, "after", "invalid_request_error",
		"ERR429_TOO_MANY_REQUESTS", "TOO_MANY_DUPLICATES",
		"duplicates of this key come faster than limits.duplicate_rate"},
	"unavailable": {503, EffectNo, "safe", "api_error",
		"ERR503_SERVICE_UNAVAILABLE", "STORE_UNAVAILABLE",
		"Once does not take anything at the moment; nothing was done"},
	"outcome_not_sealed": {503, EffectUnknown, "after", "api_error",
		"ERR503_SERVICE_UNAVAILABLE", "OUTCOME_NOT_SEALED",
		"the handler answered, and Once could not record its answer"},
}

var decisions = map[string]string{"idempotency_conflict": "conflict_rejected",
	"in_progress": "in_progress", "outcome_unknown": "held_unknown"}

// refusing is one refusal on its way.
type refusing struct {
	refusalForm
	profile      string
	code         string
	requestID    string
	operationID  string // "": none
	retryAfterMs int64  // 0: none
}

func refusingOf(profileName, code, requestID, operationID string,
	retryAfter time.Duration) *refusing {
	r := &refusing{refusalForms[code], profileName, code, requestID, operationID,
		retryAfter.Milliseconds()}
	if code == "idempotency_conflict" {
		r.status = profiles[profileName].conflictStatus
	}
	return r
}

func (r *refusing) body() []byte {
	text, err := json.Marshal(profiles[r.profile].form(r))
	if err != nil {
		panic("once: " + err.Error()) // it is made of texts and numbers
	}
	return text
}

// addTo adds the fields of the refusal's form. Stripe's libraries obey Stripe-Should-Retry.
func (r *refusing) addTo(header http.Header) {
	header.Set("Content-Type", "application/json")
	if r.profile == "ietf" || r.profile == "ops" {
		header.Set("Content-Type", "application/problem+json")
	}
	switch {
	case r.profile == "stripe" && r.code == "outcome_unknown":
		header.Set("Stripe-Should-Retry", "false")
	case r.profile == "stripe" && r.code == "in_progress":
		header.Set("Stripe-Should-Retry", "true")
	}
	if r.retryAfterMs > 0 {
		header.Set("Retry-After", strconv.FormatInt((r.retryAfterMs+999)/1000, 10))
	}
}

// error is where Stripe's library and its kind look.
func (r *refusing) error() object {
	return object{"type": r.kind, "code": r.code, "message": r.text}
}

func (r *refusing) addBeside(document object) object {
	document["effect"], document["retry"] = r.effect, r.retry
	document["request_id"] = r.requestID
	if r.operationID != "" {
		document["operation_id"] = r.operationID
	}
	if r.retryAfterMs > 0 {
		document["retry_after_ms"] = r.retryAfterMs
	}
	return document
}

func formProblem(r *refusing) object {
	document := r.addBeside(object{"type": "/docs/problems.md#" + r.code,
		"title": http.StatusText(r.status), "status": r.status, "detail": r.text, "code": r.code,
		"error": r.error()})
	if r.profile == "ops" && r.code == "idempotency_conflict" {
		document["diff"] = nil // only a fingerprint of the first request is kept
	}
	return document
}

func formGuardia(r *refusing) object {
	return object{"errors": []any{r.addBeside(object{"code": r.guardiaCode,
		"reason": r.guardiaCause, "message": r.text})}, "error": r.error()}
}

func formADR007(r *refusing) object {
	word := r.code
	switch word {
	case "idempotency_conflict":
		word = "idempotency_mismatch"
	case "in_progress":
		word = "idempotency_in_progress"
	}
	return r.addBeside(object{"error": word, "message": r.text})
}

func formStripe(r *refusing) object {
	error := r.error()
	if r.code == "in_progress" {
		error["code"] = "idempotency_key_in_use"
	}
	return object{"error": r.addBeside(error)}
}

// key reads the key of a request; false: it is not well formed for the profile.
func (p *profile) key(fields []string) (string, bool) {
	key, is := keyOf(fields)
	if !is && p.isLoose && len(fields) == 1 {
		key = strings.Trim(fields[0], " \t")
		is = isWithin(key, 1, keyBytesMax, ' ', '~')
	}
	if is && p.isUUID {
		is = isUUID(key)
	}
	return key, is
}

func isUUID(text string) bool {
	const form = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"
	if len(text) != len(form) {
		return false
	}
	for i := 0; i < len(form); i++ {
		isHex := strings.IndexByte("0123456789abcdefABCDEF", text[i]) >= 0
		if form[i] == '-' && text[i] != '-' || form[i] == 'h' && !isHex {
			return false
		}
	}
	return true
}
