package once

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// One attempt: sent once, and never a second time without the caller's knowledge.
//
// http.Transport repeats a request by itself, with the same Request-Id, when a kept connection
// breaks and the request "is replayable": it is a read, or has the field Idempotency-Key or
// X-Idempotency-Key, and has no body or one that GetBody gives again. Here no request is: a read
// carries an empty body that is not http.NoBody, nothing has GetBody, and the two fields are put
// into the map under lower-case names, which the wire does not tell apart. What is left is a
// connection on which nothing was written, where a second try is safe.

// answer is the result of one attempt and, for the last one, of the whole call.
type answer struct {
	end      string
	status   int
	header   http.Header
	body     []byte
	rest     io.ReadCloser // what was not read; nil: the body is whole
	response *http.Response
	why      string
	err      error

	requestID string
	attempts  int
	effect    Effect
}

// keeping decides how much of an answer is read: -1: none, it streams.
type keeping func(header http.Header, bytesMax int64) int64

func wholeAnswer(_ http.Header, bytesMax int64) int64 { return bytesMax }

func (a *answer) drop() {
	if a.rest != nil {
		a.rest.Close()
	}
}

func (a *answer) facts(isRead bool) facts {
	return facts{end: a.end, isRead: isRead, status: a.status, isReplayed: isReplayed(a.header),
		decision: a.header.Get("Once-Decision"), document: a.document()}
}

// document is what a refusal says in its body.
func (a *answer) document() any {
	if a.status < 400 || !strings.Contains(a.header.Get("Content-Type"), "json") ||
		len(a.body) > documentBytesMax || a.rest != nil {
		return nil
	}
	var document any
	if json.Unmarshal(a.body, &document) != nil {
		return nil
	}
	return document
}

// track is how far an attempt got. A Base that is not known to report it counts as one that sent.
type track struct{ isReported, isConnected atomic.Bool }

func (t *track) context(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.isReported.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.isConnected.Store(true) },
	})
}

func (c *Client) attempt(ctx context.Context, r *request, id string, timeout time.Duration,
	keep keeping) *answer {
	ctx, cancel := context.WithCancel(ctx)
	isLate := atomic.Bool{}
	timer := time.AfterFunc(timeout, func() { isLate.Store(true); cancel() })
	var track track
	_, isOfNet := c.base().(*http.Transport)
	track.isReported.Store(isOfNet)
	request, err := c.requestOf(track.context(ctx), r, id)
	if err != nil {
		timer.Stop()
		cancel()
		return &answer{end: endHopeless, why: err.Error(), err: err, header: http.Header{}}
	}
	response, err := c.base().RoundTrip(request)
	if err != nil {
		timer.Stop()
		cancel()
		return failed(err, &track, isLate.Load())
	}
	answer := &answer{end: endAnswered, status: response.StatusCode, header: response.Header,
		response: response}
	stop := func() { timer.Stop(); cancel() }
	size := keep(response.Header, or(c.BodyBytesMax, 16<<20))
	if size < 0 {
		timer.Stop()
		answer.rest = &stream{response.Body, response.Body, stop}
		return answer
	}
	answer.body, err = io.ReadAll(io.LimitReader(response.Body, size+1))
	if err != nil {
		response.Body.Close()
		stop()
		return failed(err, &track, isLate.Load())
	}
	if int64(len(answer.body)) > size {
		timer.Stop()
		whole := io.MultiReader(bytes.NewReader(answer.body), response.Body)
		answer.body, answer.rest = nil, &stream{whole, response.Body, stop}
		return answer
	}
	response.Body.Close()
	stop()
	return answer
}

// stream is a body that the caller reads; its end frees the attempt.
type stream struct {
	io.Reader
	body io.Closer
	stop func()
}

func (s *stream) Close() error {
	err := s.body.Close()
	s.stop()
	return err
}

func failed(err error, track *track, isLate bool) *answer {
	a := &answer{end: endLost, why: err.Error(), err: err, header: http.Header{}}
	if isLate {
		a.why = "timed out"
	}
	switch {
	case isCertificate(err):
		a.end = endHopeless
	case track.isReported.Load() && !track.isConnected.Load():
		a.end = endNotSent
	case strings.Contains(err.Error(), "headers exceeded"): // net/http has no name for its error
		a.end = endUnreadable
	}
	return a
}

func isCertificate(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// nothing is a body without bytes that net/http does not know to be one.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }
func (nothing) Close() error             { return nil }

func (c *Client) requestOf(ctx context.Context, r *request, id string) (*http.Request, error) {
	header := r.header.Clone()
	header.Set("Request-Id", id)
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", or(c.UserAgent, "once-go/"+Version))
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, is := header[name]; is {
			delete(header, name)
			header[strings.ToLower(name)] = values
		}
	}
	request := (&http.Request{Method: r.method, URL: r.url, Host: r.host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if r.body == nil {
		request.Body = nothing{}
		request.TransferEncoding = []string{"identity"} // neither probed nor chunked
		return request, nil
	}
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	request.Body, request.ContentLength = body, r.bodySize
	if r.bodySize == 0 {
		request.Body = http.NoBody // Content-Length: 0
	}
	return request, nil
}
