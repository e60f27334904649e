package once

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	keyBytesMax       = 255
	requestIDBytesMax = 200
	methodBytesMax    = 32
)

// Fields that the client sets itself: a second value would be ambiguous.
var reserved = map[string]bool{"idempotency-key": true, "request-id": true,
	"content-length": true, "transfer-encoding": true, "connection": true, "expect": true}

// SendOption is an option of one call.
type SendOption func(*sending)

type sending struct {
	key, requestID           *string
	headers                  [][2]string
	retries                  *int
	deadline, attemptTimeout *time.Duration
}

// IdempotencyKey names the operation. Without it, a UUIDv4 is made and used for all retries; pass
// your own, stored beforehand, if the program may crash and call again.
func IdempotencyKey(key string) SendOption { return func(s *sending) { s.key = &key } }

// RequestID is the id of the first attempt; later ones append ".2", ".3".
func RequestID(id string) SendOption { return func(s *sending) { s.requestID = &id } }

// Header adds a field to every attempt.
func Header(name, value string) SendOption {
	return func(s *sending) { s.headers = append(s.headers, [2]string{name, value}) }
}

// Retries is Client.Retries for this call; 0: none.
func Retries(retries int) SendOption { return func(s *sending) { s.retries = &retries } }

// Deadline is Client.Deadline for this call.
func Deadline(d time.Duration) SendOption { return func(s *sending) { s.deadline = &d } }

// AttemptTimeout is Client.AttemptTimeout for this call.
func AttemptTimeout(d time.Duration) SendOption {
	return func(s *sending) { s.attemptTimeout = &d }
}

// request is what is the same in every attempt of one call, checked.
type request struct {
	method   string
	url      *url.URL
	host     string // "": that of the URL
	header   http.Header
	key      string // "" for a read
	givenID  *string
	body     func() (io.ReadCloser, error) // nil: none
	bodySize int64                         // -1: unknown
}

func newRequest(method, address string, body any, s *sending) (*request, error) {
	if err := check(method, address, s.key, s.requestID); err != nil {
		return nil, err
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("url cannot be read: %w", err)
	}
	r := &request{method: method, url: parsed, header: http.Header{}, givenID: s.requestID}
	if err := r.setBody(body); err != nil {
		return nil, err
	}
	for _, each := range s.headers {
		if err := checkHeader(each[0], each[1]); err != nil {
			return nil, err
		}
		r.header.Set(each[0], each[1])
	}
	if r.body != nil && r.header.Get("Content-Type") == "" {
		r.header.Set("Content-Type", "application/json")
	}
	if !isRead(method) {
		if r.key = uuid4(); s.key != nil {
			r.key = *s.key
		}
		r.header.Set("Idempotency-Key", spelled(r.key))
	}
	return r, nil
}

func (r *request) setBody(body any) error {
	var text []byte
	switch body := body.(type) {
	case nil:
		if r.method != "POST" && r.method != "PUT" && r.method != "PATCH" {
			return nil // for those a body is sent even when it is empty
		}
	case []byte:
		text = body
	case json.RawMessage:
		text = body
	case string:
		text = []byte(body)
	case io.Reader:
		return errors.New("body is a reader, which cannot be sent again; pass its bytes")
	default:
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("body has no JSON: %w", err)
		}
	}
	r.bodySize = int64(len(text))
	r.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	return nil
}

// idOf is the Request-Id of the nth attempt: never the same twice.
func (r *request) idOf(number int) string {
	switch {
	case r.givenID == nil:
		return uuid7()
	case number == 1:
		return *r.givenID
	}
	return fmt.Sprintf("%s.%d", *r.givenID, number)
}

func check(method, address string, key, requestID *string) error {
	if !isMethod(method) {
		return fmt.Errorf("method %q cannot be sent; it is written in capital letters", method)
	}
	if !isWithin(address, 1, 1<<20, '!', '~') {
		return errors.New("url has a space or an odd character; escape it as %XX")
	}
	lower := strings.ToLower(address)
	rest := strings.TrimPrefix(strings.TrimPrefix(lower, "http://"), "https://")
	if rest == lower || rest == "" || rest[0] == '/' {
		return errors.New("url does not begin with http:// or https:// and a host")
	}
	if key != nil && !isWithin(*key, 1, keyBytesMax, ' ', '~') {
		return fmt.Errorf("idempotency_key is not 1 to %d printable characters", keyBytesMax)
	}
	if requestID != nil && !isWithin(*requestID, 1, requestIDBytesMax, '!', '~') {
		return fmt.Errorf("request_id is not 1 to %d visible characters", requestIDBytesMax)
	}
	return nil
}

func isMethod(method string) bool {
	if method == "" || len(method) > methodBytesMax || method == "CONNECT" || method[0] == '-' {
		return false
	}
	return strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

func isWithin(text string, sizeMin, sizeMax int, first, last byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < first || text[i] > last {
			return false
		}
	}
	return len(text) >= sizeMin && len(text) <= sizeMax
}

const tokens = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func checkHeader(name, value string) error {
	if name == "" || strings.Trim(name, tokens) != "" {
		return fmt.Errorf("header name %q is not one", name)
	}
	for i := 0; i < len(value); i++ {
		if value[i] < 0x20 && value[i] != '\t' || value[i] == 0x7f {
			return fmt.Errorf("header %q has a control character in its value", name)
		}
	}
	if reserved[strings.ToLower(name)] {
		return fmt.Errorf("header %q is not the caller's to set; a key and a request id are "+
			"options of their own", name)
	}
	return nil
}

// spelled is a key as a field: bare if that is unambiguous, else as a string of RFC 9651. Both
// name the same key.
func spelled(key string) string {
	if !strings.ContainsAny(key, " \"\\,;") {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func randomBytes(bytes []byte) {
	if _, err := rand.Read(bytes); err != nil {
		panic("once: the system has no random numbers: " + err.Error())
	}
}

func uuidText(bytes [16]byte, version byte) string {
	bytes[6] = bytes[6]&0x0f | version<<4
	bytes[8] = bytes[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", bytes[:4], bytes[4:6], bytes[6:8], bytes[8:10], bytes[10:])
}

func uuid4() string {
	var bytes [16]byte
	randomBytes(bytes[:])
	return uuidText(bytes, 4)
}

// uuid7 is sorted by time (RFC 9562), so that attempts are in order in a log.
func uuid7() string {
	var bytes [16]byte
	randomBytes(bytes[6:])
	ms := uint64(time.Now().UnixMilli())
	for i := 0; i < 6; i++ {
		bytes[i] = byte(ms >> (40 - 8*i))
	}
	return uuidText(bytes, 7)
}
