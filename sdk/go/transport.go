package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Transport is an http.RoundTripper with the retries of Client, for code that has an http.Client.
//
//	client := &http.Client{Transport: &once.Transport{}}
//
// Every request is one operation. Its key is the request's Idempotency-Key, or a UUIDv4 made once;
// a Request-Id of the request's own is continued as with RequestID. A body without GetBody is read
// into memory first, up to the client's BodyBytesMax. Answers are read whole, so that half of one
// is asked for again; those that are larger, or text/event-stream, stream. The http.Client follows
// redirects; a request to a different URL is a different operation.
type Transport struct {
	Client *Client // nil: one with the defaults
}

var defaultClient Client

// Call is what became of a request that a Transport sent.
type Call struct {
	IdempotencyKey string // "" for a read
	RequestID      string // of the last attempt
	Attempts       int
	Effect         Effect // of the operation, over all attempts
	IsReplayed     bool   // this is the answer of an earlier attempt
}

type callKey struct{}

// CallOf says what became of a request; false: no Transport sent it.
func CallOf(response *http.Response) (Call, bool) {
	if response == nil || response.Request == nil {
		return Call{}, false
	}
	call, is := response.Request.Context().Value(callKey{}).(Call)
	return call, is
}

// RoundTrip carries out one operation.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	client := t.Client
	if client == nil {
		client = &defaultClient
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	r, err := requestFrom(req, or(client.BodyBytesMax, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("once: %w", err)
	}
	last, err := client.try(req.Context(), r, judge, &sending{}, streamEvents)
	if err != nil {
		return nil, err
	}
	response := last.response
	if last.rest != nil {
		response.Body = last.rest
	} else {
		response.Body = io.NopCloser(bytes.NewReader(last.body))
	}
	response.Request = req.WithContext(context.WithValue(req.Context(), callKey{}, Call{
		IdempotencyKey: r.key, RequestID: last.requestID, Attempts: last.attempts,
		Effect: last.effect, IsReplayed: isReplayed(last.header)}))
	return response, nil
}

func streamEvents(header http.Header, bytesMax int64) int64 {
	if strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
		return -1
	}
	return bytesMax
}

func requestFrom(req *http.Request, bytesMax int64) (*request, error) {
	r := &request{method: or(req.Method, "GET"), url: req.URL, host: req.Host,
		header: req.Header.Clone()}
	if r.header == nil {
		r.header = http.Header{}
	}
	if req.URL == nil {
		return nil, errors.New("url is missing")
	}
	if id := r.header.Get("Request-Id"); id != "" {
		r.givenID = &id
	}
	if err := check(r.method, req.URL.String(), nil, r.givenID); err != nil {
		return nil, err
	}
	if err := r.takeKey(); err != nil {
		return nil, err
	}
	return r, r.takeBody(req, bytesMax)
}

func (r *request) takeKey() error {
	fields := r.header.Values("Idempotency-Key")
	if isRead(r.method) {
		r.header.Del("Idempotency-Key")
		return nil
	}
	if len(fields) == 0 {
		r.key = uuid4()
		r.header.Set("Idempotency-Key", r.key)
		return nil
	}
	key, is := keyOf(fields)
	if !is {
		return fmt.Errorf("idempotency_key %q is not one", fields)
	}
	r.key = key
	return nil
}

func (r *request) takeBody(req *http.Request, bytesMax int64) error {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		if r.method == "POST" || r.method == "PUT" || r.method == "PATCH" {
			return r.setBody([]byte(nil))
		}
		return nil
	case req.GetBody != nil:
		r.body, r.bodySize = req.GetBody, req.ContentLength
		if r.bodySize == 0 {
			r.bodySize = -1
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, bytesMax+1))
	if err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	if int64(len(body)) > bytesMax {
		return fmt.Errorf("the body is larger than BodyBytesMax (%d); set GetBody", bytesMax)
	}
	return r.setBody(body)
}
