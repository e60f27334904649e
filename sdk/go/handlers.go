package once

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Handlers fences the handlers of an HTTP server without a gateway.
//
//	handlers := &once.Handlers{Fences: fences}
//	http.ListenAndServe(address, handlers.Wrap(mux))
//
// A request with a key is begun before the handler runs and sealed before its answer is complete.
// The answers are those of the gateway's profile: a conflict, an operation that runs, an unknown
// one; a replay is the first answer with Idempotent-Replayed: true. If Once cannot be reached
// nothing runs: 503. Reads pass through untouched. The zero value of a field is its default.
type Handlers struct {
	Fences       *Fences                    // that of NewFences("")
	Profile      string                     // ietf; or guardia, adr007, ops, stripe
	Methods      []string                   // those of the profile
	Wait         time.Duration              // how long a duplicate waits; 10 s; negative: not at all
	Lease        time.Duration              // is renewed while the handler runs; 60 s
	TTL          time.Duration              // how long duplicates are recognised; the profile's
	TakeOver     bool                       // see the option TakeOver
	Principal    func(*http.Request) string // a digest of Authorization or the API key; "": none
	OnStatus     map[int]string             // {500: "release"}; seal, release and unknown
	BodyBytesMax int64                      // of a request; 10 MiB
	AnswerMax    int64                      // of an answer that is kept, in bytes; 10 MiB
}

var released = map[int]bool{408: true, 425: true, 429: true, 503: true} // nothing was done

var unkept = map[string]bool{"connection": true, "keep-alive": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "idempotency-key": true, "request-id": true,
	"idempotent-replayed": true, "original-request-id": true, "upstream-request-id": true,
	"set-cookie": true, "set-cookie2": true, "last-modified": true, "content-length": true,
	"date": true, "age": true, "server-timing": true}

var unkeptPrefixes = []string{"proxy-", "once-", "ratelimit", "x-ratelimit", "x-rate-limit",
	"trailer:"}

// Wrap returns a handler that fences next. It panics if a field of h is invalid.
func (h *Handlers) Wrap(next http.Handler) http.Handler {
	f := &fenced{Handlers: *h, next: next}
	f.Profile = or(h.Profile, "ietf")
	f.profile = profiles[f.Profile]
	if f.profile == nil {
		panic(fmt.Sprintf("once: there is no profile %q", f.Profile))
	}
	if f.Fences == nil {
		f.Fences = NewFences("")
	}
	if f.Methods == nil {
		f.Methods = f.profile.methods
	}
	f.TTL = or(h.TTL, f.profile.ttl)
	if f.profile.ttlMax > 0 && (f.TTL < f.profile.ttlMin || f.TTL > f.profile.ttlMax) {
		panic(fmt.Sprintf("once: a TTL of %v is not within %v and %v, as the profile %s demands",
			f.TTL, f.profile.ttlMin, f.profile.ttlMax, f.Profile))
	}
	for status, end := range h.OnStatus {
		if end != "seal" && end != "release" && end != "unknown" {
			panic(fmt.Sprintf("once: OnStatus[%d] is %q; it is seal, release or unknown", status,
				end))
		}
	}
	f.Wait, f.Lease = or(h.Wait, 10*time.Second), or(h.Lease, time.Minute)
	f.BodyBytesMax, f.AnswerMax = or(h.BodyBytesMax, 10<<20), or(h.AnswerMax, 10<<20)
	return f
}

type fenced struct {
	Handlers
	profile *profile
	next    http.Handler
}

func (f *fenced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fields := r.Header.Values("Idempotency-Key")
	if !contains(f.Methods, r.Method) || len(fields) == 0 && f.profile.missing == "pass" {
		f.next.ServeHTTP(w, r)
		return
	}
	e := &exchange{fenced: f, w: w, r: r, id: requestIDOf(r),
		keyField: r.Header.Get("Idempotency-Key")}
	if len(fields) == 0 && f.profile.missing == "generate" {
		e.keyField = uuid4()
		fields = []string{e.keyField}
	}
	if len(fields) == 0 {
		e.refuse("idempotency_key_missing", "", 0)
		return
	}
	key, is := f.profile.key(fields)
	if !is {
		e.refuse("idempotency_key_invalid", "", 0)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, f.BodyBytesMax+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the client left before the end of its request
	}
	if int64(len(body)) > f.BodyBytesMax {
		e.refuse("body_too_large", "", 0)
		return
	}
	e.begin(key, body)
}

func contains(list []string, text string) bool {
	for _, each := range list {
		if each == text {
			return true
		}
	}
	return false
}

func requestIDOf(r *http.Request) string {
	id := r.Header.Get("Request-Id")
	if isWithin(id, 1, requestIDBytesMax, '!', '~') {
		return id
	}
	return uuid7()
}

// exchange is one fenced request.
type exchange struct {
	*fenced
	w        http.ResponseWriter
	r        *http.Request
	id       string // its Request-Id, or a new one
	keyField string // Idempotency-Key as it is echoed
}

var hasty = regexp.MustCompile(`(^|[,; ])wait=0+($|[,; ])`) // RFC 7240

func (e *exchange) begin(key string, body []byte) {
	path := canonicalPath([]byte(pathOf(e.r)))
	options := []BeginOption{Fingerprint(fingerprint(e.r.Method, path, e.r.URL.RawQuery,
		e.r.Header.Get("Content-Type"), body)), Lease(e.Lease),
		Trace(map[string]any{"request_id": e.id})}
	principal := principalOf
	if e.Principal != nil {
		principal = e.Principal
	}
	if text := principal(e.r); text != "" {
		options = append(options, Principal(text))
	}
	if e.TTL > 0 {
		options = append(options, TTL(e.TTL))
	}
	if e.TakeOver {
		options = append(options, TakeOver())
	}
	if e.Wait > 0 && !hasty.MatchString(e.r.Header.Get("Prefer")) {
		options = append(options, Wait(e.Wait))
	}
	// A client that leaves now must not leave a grant without a holder.
	ctx := detached{e.r.Context()}
	begun, err := e.Fences.begin(ctx, e.r.Method+" "+path, key, nil, judgeBriefly, options)
	switch {
	case err != nil:
		e.refused(err)
	case begun.Replay != nil:
		e.replay(begun.Replay)
	default:
		e.run(begun.Grant, body)
	}
}

// pathOf is the path as it was sent, whatever was stripped from it on the way here.
func pathOf(r *http.Request) string {
	if path, _, _ := strings.Cut(r.RequestURI, "?"); strings.HasPrefix(path, "/") {
		return path
	}
	return r.URL.EscapedPath()
}

func (e *exchange) refused(err error) {
	var problem *Problem
	if !errors.As(err, &problem) {
		e.refuse("unavailable", "", 0)
		return
	}
	code := problem.Code
	if _, is := refusalForms[code]; !is {
		code = "unavailable"
	}
	e.refuse(code, problem.OperationID, problem.RetryAfter)
}

// run calls the handler under the grant. Its context does not end when the client leaves: what was
// begun is finished and sealed.
func (e *exchange) run(grant *Grant, body []byte) {
	ctx, stop := grant.hold(detached{e.r.Context()}, e.Lease)
	isOver := false
	defer func() {
		stop()
		if !isOver {
			grant.leaveUnknown(detached{e.r.Context()}, "the handler panicked")
		}
	}()
	r := e.r.WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.TransferEncoding = nil
	r.Header = e.r.Header.Clone()
	r.Header.Set("Idempotency-Key", e.keyField)
	r.Header.Set("Request-Id", e.id)
	kept := &recorder{exchange: e, grant: grant, header: http.Header{}}
	e.next.ServeHTTP(kept, r)
	isOver = true
	stop()
	kept.finish()
}

// --- Answers of our own ---

func (e *exchange) refuse(code, operationID string, retryAfter time.Duration) {
	r := refusingOf(e.Profile, code, e.id, operationID, retryAfter)
	e.say(e.w.Header(), operationID, decisions[code], string(r.effect))
	r.addTo(e.w.Header())
	e.send(r.status, r.body())
}

// say sets the fields that say what Once did.
func (e *exchange) say(header http.Header, operationID, decision, effect string) {
	for _, each := range [][2]string{{"Idempotency-Key", e.keyField}, {"Request-Id", e.id},
		{"Once-Decision", decision}, {"Once-Operation-Id", operationID}, {"Once-Effect", effect}} {
		if each[1] != "" {
			header.Set(each[0], each[1])
		}
	}
}

func (e *exchange) send(status int, body []byte) {
	if status >= 200 && status != 204 && status != 304 {
		e.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	e.w.WriteHeader(status)
	if status != 204 && status != 304 {
		_, _ = e.w.Write(body) // the client may have left; it is sealed
	}
}

type keptAnswer struct {
	Status     int         `json:"status"`
	Headers    [][2]string `json:"headers,omitempty"`
	Body       *string     `json:"body,omitempty"`
	Base64     *string     `json:"body_base64,omitempty"`
	RequestID  string      `json:"request_id,omitempty"`
	IsBodyLost bool        `json:"is_body_lost,omitempty"`
}

type keptOutcome struct {
	HTTP *keptAnswer `json:"http"`
}

func (e *exchange) replay(replay *Replay) {
	var outcome keptOutcome
	if json.Unmarshal(replay.Outcome, &outcome) != nil || outcome.HTTP == nil {
		outcome.HTTP = settled(replay)
	}
	kept := outcome.HTTP
	if kept.IsBodyLost {
		e.refuse("outcome_not_retained", replay.OperationID, 0)
		return
	}
	body, err := kept.bytes()
	if err != nil || kept.Status < 200 || kept.Status > 999 {
		e.refuse("outcome_not_retained", replay.OperationID, 0)
		return
	}
	header := e.w.Header()
	for _, each := range kept.Headers {
		header.Add(each[0], each[1])
	}
	e.say(header, replay.OperationID, "duplicate_replayed", "")
	header.Set("Idempotent-Replayed", "true")
	if sealed, err := time.Parse(time.RFC3339, replay.SealedAt); err == nil {
		header.Set("Last-Modified", sealed.UTC().Format(http.TimeFormat))
	}
	if kept.RequestID != "" {
		header.Set("Original-Request-Id", kept.RequestID)
	}
	if len(body) == 0 && header.Get("Content-Type") == "" {
		header["Content-Type"] = nil // nothing to guess it from
	}
	e.send(kept.Status, body)
}

// settled is the answer where a person settled it, with an outcome of a different form.
func settled(replay *Replay) *keptAnswer {
	body := string(replay.Outcome)
	if body == "null" {
		body = ""
	}
	kept := &keptAnswer{Status: 422, Headers: [][2]string{{"Content-Type", "application/json"}},
		Body: &body}
	if replay.Status == "executed" {
		kept.Status = 200
	}
	return kept
}

func (k *keptAnswer) bytes() ([]byte, error) {
	switch {
	case k.Base64 != nil:
		return base64.StdEncoding.DecodeString(*k.Base64)
	case k.Body != nil:
		return []byte(*k.Body), nil
	}
	return nil, nil
}

// --- The handler's answer ---

// recorder holds the handler's answer back until it is sealed. One that is larger than AnswerMax
// is sent as it comes; its end is sent after it was sealed without its body.
type recorder struct {
	*exchange
	grant     *Grant
	header    http.Header
	status    int // 0: not yet
	body      []byte
	isThrough bool
}

func (k *recorder) Header() http.Header { return k.header }

func (k *recorder) WriteHeader(status int) {
	if k.status == 0 && status >= 200 {
		k.status = status
	}
}

// Flush does nothing: an answer is sent whole.
func (k *recorder) Flush() {}

func (k *recorder) Write(piece []byte) (int, error) {
	k.WriteHeader(200)
	if !k.isThrough && int64(len(k.body)+len(piece)) <= k.AnswerMax {
		k.body = append(k.body, piece...)
		return len(piece), nil
	}
	if !k.isThrough {
		k.isThrough = true
		k.guessType()
		k.leave("")
		k.w.Header().Del("Content-Length")
		k.w.WriteHeader(k.status)
		if _, err := k.w.Write(k.body); err != nil {
			return 0, err
		}
		k.body = nil
	}
	return k.w.Write(piece)
}

// guessType does what net/http would do later, so that a replay has it too.
func (k *recorder) guessType() {
	_, isTyped := k.header["Content-Type"]
	if !isTyped && len(k.body) > 0 && k.header.Get("Content-Encoding") == "" {
		k.header.Set("Content-Type", http.DetectContentType(k.body))
	}
}

// leave puts the fields of the answer, and ours, where they leave.
func (k *recorder) leave(effect string) {
	header := k.w.Header()
	for name, values := range k.header {
		header[name] = values
	}
	k.say(header, k.grant.OperationID, "first_seen", effect)
}

func (k *recorder) finish() {
	k.WriteHeader(200)
	k.guessType()
	end, effect := endOf(k.status, k.OnStatus, k.profile.isSealed5xx), ""
	ctx := detached{k.r.Context()}
	var err error
	switch reason := fmt.Sprintf("the handler answered %d", k.status); end {
	case "release":
		effect, err = "no", k.grant.Release(ctx, reason)
	case "unknown":
		effect, err = "unknown", k.grant.Unknown(ctx, reason)
	default:
		err = k.seal(ctx, end)
	}
	switch {
	case k.isThrough && err != nil:
		k.abort()
	case err != nil:
		k.refuse("outcome_not_sealed", k.grant.OperationID, 0)
	case !k.isThrough:
		k.leave(effect)
		k.send(k.status, k.body)
	}
}

// abort cuts off an answer that was sent in part: it must not look complete. The connection is
// closed first: where a panic is recovered on its way out, the answer would get its end.
func (k *recorder) abort() {
	if hijacker, is := k.w.(http.Hijacker); is {
		if conn, _, err := hijacker.Hijack(); err == nil {
			_ = conn.Close()
		}
	}
	panic(http.ErrAbortHandler)
}

func (k *recorder) seal(ctx context.Context, status string) error {
	small := &keptAnswer{Status: k.status, IsBodyLost: true}
	if k.isThrough {
		return k.grant.Seal(ctx, keptOutcome{small}, Status(status))
	}
	err := k.grant.Seal(ctx, outcomeOf(k.status, pairsOf(k.header), k.body, k.id), Status(status))
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == 413 {
		return k.grant.Seal(ctx, keptOutcome{small}, Status(status))
	}
	return err
}

func pairsOf(header http.Header) [][2]string {
	pairs := [][2]string{}
	for name, values := range header {
		for _, value := range values {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	sort.SliceStable(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	return pairs
}

// --- Pure parts: the cases are in tests/vectors/sdk/handlers.json ---

var (
	quotedKey = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])*"$`)
	bareKey   = regexp.MustCompile(`^[!#-+\--\[\]-~]*$`)
	escapedIn = regexp.MustCompile(`\\(.)`)
)

// keyOf is the key that an Idempotency-Key field names: an RFC 9651 string, or bare.
func keyOf(fields []string) (string, bool) {
	if len(fields) != 1 {
		return "", false
	}
	text := strings.Trim(fields[0], " \t")
	if strings.HasPrefix(text, `"`) {
		if !quotedKey.MatchString(text) {
			return "", false
		}
		text = escapedIn.ReplaceAllString(text[1:len(text)-1], "$1")
	} else if !bareKey.MatchString(text) {
		return "", false
	}
	return text, text != "" && len(text) <= keyBytesMax
}

// canonicalPath is the one spelling of a path, of its bytes as they were sent.
func canonicalPath(raw []byte) string {
	if len(raw) == 0 {
		return "/"
	}
	var out strings.Builder
	for i := 0; i < len(raw); i++ {
		c, isEscaped := raw[i], false
		if c == '%' && i+2 < len(raw) {
			if value, err := strconv.ParseUint(string(raw[i+1:i+3]), 16, 8); err == nil {
				c, isEscaped = byte(value), true
				i += 2
			}
		}
		if c > ' ' && c <= '~' && c != '%' && !(isEscaped && c == '/') {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// fingerprint is the SHA-256 of what was asked.
func fingerprint(method, path, query, contentType string, body []byte) string {
	contentType = latin1(strings.TrimSpace(contentType))
	essence, _, _ := strings.Cut(contentType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	asked := object{"method": method, "path": path, "query": latin1(query)}
	if essence == "application/json" || strings.HasSuffix(essence, "+json") {
		if value, err := Parse(body); err == nil {
			asked["json"], asked["content_type"] = value, essence
			if sum, err := digest(asked); err == nil {
				return sum
			}
			delete(asked, "json")
		}
	}
	asked["content_type"] = contentType
	asked["sha256"] = sha256Hex(body) // invalid or lossy: the bytes count
	sum, err := digest(asked)
	if err != nil {
		panic("once: " + err.Error()) // it is made of texts
	}
	return sum
}

// latin1 makes text of bytes, each its own character: no two of them become the same.
func latin1(text string) string {
	runes := make([]rune, len(text))
	for i := 0; i < len(text); i++ {
		runes[i] = rune(text[i])
	}
	return string(runes)
}

// endOf: executed and failed are sealed; release: nothing was done; unknown: it does not say.
func endOf(status int, onStatus map[int]string, isSealed5xx bool) string {
	end := onStatus[status]
	switch {
	case end != "":
	case released[status]:
		end = "release"
	case status >= 500 && !isSealed5xx:
		end = "unknown"
	default:
		end = "seal"
	}
	switch {
	case end == "seal" && status < 400:
		return "executed"
	case end == "seal":
		return "failed"
	}
	return end
}

// outcomeOf is what is sealed of an answer.
func outcomeOf(status int, headers [][2]string, body []byte, requestID string) keptOutcome {
	kept := &keptAnswer{Status: status, Headers: [][2]string{}, RequestID: requestID}
	for _, each := range headers {
		if isKept(strings.ToLower(each[0])) {
			kept.Headers = append(kept.Headers, each)
		}
	}
	if text := string(body); utf8.ValidString(text) {
		kept.Body = &text
	} else {
		text = base64.StdEncoding.EncodeToString(body)
		kept.Base64 = &text
	}
	return keptOutcome{kept}
}

func isKept(name string) bool {
	for _, prefix := range unkeptPrefixes {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !unkept[name]
}

// principalOf is the SHA-256 of Authorization, else of an API key; "": everybody is one principal.
func principalOf(r *http.Request) string {
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
		if value := r.Header.Get(name); value != "" {
			return sha256Hex([]byte(value))
		}
	}
	return ""
}
