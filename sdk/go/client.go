package once

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// NoRetries is for Client.Retries.
const NoRetries = -1

const (
	headersBytesMax  = 64 << 10 // of an answer
	documentBytesMax = 64 << 10 // of a refusal that is read for what it says
	idleTimeout      = 90 * time.Second
)

// Client calls an HTTP API so that each call takes effect once.
//
//	client := &once.Client{}
//	answer, err := client.Post(ctx, "http://127.0.0.1:8080/charges", order,
//		once.IdempotencyKey("order-7"))
//
// One call is one logical operation: the key stays the same over its automatic retries, and a later
// call with the same key, even after a crash, continues the operation. The server must honour
// Idempotency-Key: the gateway of Once, or an idempotent API. Redirects are not followed, and
// proxies are not used.
//
// The zero value is ready: zero means the default named beside the field. Any number of goroutines
// may share a client; do not change its fields once it is in use.
type Client struct {
	Retries        int           // after the first attempt; 5; NoRetries: none
	Deadline       time.Duration // of the whole call, with its pauses; 60 s
	AttemptTimeout time.Duration // of one attempt, to the last byte of its answer; 30 s
	ConnectTimeout time.Duration // 5 s
	BackoffBase    time.Duration // the first pause is random up to this, the next to twice; 100 ms
	BackoffMax     time.Duration // the upper limit of any pause; 10 s
	BodyBytesMax   int64         // of an answer; 16 MiB
	IdleMax        int           // connections kept for later calls; 16
	UserAgent      string        // "once-go/<version>"
	TLS            *tls.Config   // the system's authorities
	OnAttempt      func(Attempt) // is called after each attempt, on the caller's goroutine

	// Base carries out single attempts. nil: an http.Transport of the client's own. One of your own
	// must not repeat a request by itself, nor follow redirects.
	Base http.RoundTripper

	making sync.Once
	own    *http.Transport
}

// Attempt is one attempt, as reported to Client.OnAttempt.
type Attempt struct {
	Number    int // from 1
	RequestID string
	Status    int           // 0: there was no answer
	Why       string        // why there was none
	Sleep     time.Duration // before the next attempt; -1: this was the last
}

// Response is the answer to a call, whatever its status.
type Response struct {
	Status         int
	Header         http.Header
	Body           []byte
	IdempotencyKey string // as sent; "" for a read
	RequestID      string // of the last attempt
	Attempts       int
	Effect         Effect // of the operation, over all attempts
	IsBodyLost     bool   // it was larger than BodyBytesMax
}

// IsReplayed says that this is the answer of an earlier attempt.
func (r *Response) IsReplayed() bool { return isReplayed(r.Header) }

// Decision is Once-Decision: "first_seen", …; "" if the server is not Once.
func (r *Response) Decision() string { return r.Header.Get("Once-Decision") }

// OperationID is Once-Operation-Id; "" if the server is not Once.
func (r *Response) OperationID() string { return r.Header.Get("Once-Operation-Id") }

// Text is the body.
func (r *Response) Text() string { return string(r.Body) }

// JSON reads the body into value.
func (r *Response) JSON(value any) error { return json.Unmarshal(r.Body, value) }

func isReplayed(header http.Header) bool {
	return strings.EqualFold(header.Get("Idempotent-Replayed"), "true")
}

// Get sends a GET.
func (c *Client) Get(ctx context.Context, url string, options ...SendOption) (*Response, error) {
	return c.Send(ctx, "GET", url, nil, options...)
}

// Post sends a POST.
func (c *Client) Post(ctx context.Context, url string, body any,
	options ...SendOption) (*Response, error) {
	return c.Send(ctx, "POST", url, body, options...)
}

// Put sends a PUT.
func (c *Client) Put(ctx context.Context, url string, body any,
	options ...SendOption) (*Response, error) {
	return c.Send(ctx, "PUT", url, body, options...)
}

// Patch sends a PATCH.
func (c *Client) Patch(ctx context.Context, url string, body any,
	options ...SendOption) (*Response, error) {
	return c.Send(ctx, "PATCH", url, body, options...)
}

// Delete sends a DELETE.
func (c *Client) Delete(ctx context.Context, url string, options ...SendOption) (*Response, error) {
	return c.Send(ctx, "DELETE", url, nil, options...)
}

// Send sends, and retries while that is safe, useful and within the deadline and ctx. Body: bytes
// and text as they are, anything else as JSON. The error is an *Unavailable (nothing happened) or a
// *NoAnswer (it may have happened); or a plain one before anything was sent.
func (c *Client) Send(ctx context.Context, method, url string, body any,
	options ...SendOption) (*Response, error) {
	var s sending
	for _, option := range options {
		option(&s)
	}
	request, err := newRequest(method, url, body, &s)
	if err != nil {
		return nil, fmt.Errorf("once: %w", err)
	}
	return c.sendJudged(ctx, request, judge, &s)
}

// Close closes the idle connections. The client can still be used.
func (c *Client) Close() {
	if base, is := c.base().(interface{ CloseIdleConnections() }); is {
		base.CloseIdleConnections()
	}
}

func (c *Client) base() http.RoundTripper {
	if c.Base != nil {
		return c.Base
	}
	c.making.Do(func() {
		connect := or(c.ConnectTimeout, 5*time.Second)
		idle := or(c.IdleMax, 16)
		c.own = &http.Transport{
			DialContext:            (&net.Dialer{Timeout: connect}).DialContext,
			TLSClientConfig:        c.TLS,
			TLSHandshakeTimeout:    connect,
			MaxIdleConns:           idle,
			MaxIdleConnsPerHost:    idle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: headersBytesMax,
			DisableCompression:     true, // a replay is the same byte for byte
		}
	})
	return c.own
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (c *Client) sendJudged(ctx context.Context, r *request, judge func(facts) verdict,
	s *sending) (*Response, error) {
	last, err := c.try(ctx, r, judge, s, wholeAnswer)
	if err != nil {
		return nil, err
	}
	last.drop()
	return &Response{Status: last.status, Header: last.header, Body: last.body,
		IdempotencyKey: r.key, RequestID: last.requestID, Attempts: last.attempts,
		Effect: last.effect, IsBodyLost: last.rest != nil}, nil
}

// try makes attempts until one is the last. Its error is the end of the operation.
func (c *Client) try(ctx context.Context, r *request, judge func(facts) verdict, s *sending,
	keep keeping) (*answer, error) {
	retries := or(c.Retries, 5)
	if s.retries != nil {
		retries = *s.retries
	}
	ends := time.Now().Add(given(s.deadline, or(c.Deadline, 60*time.Second)))
	if limit, is := ctx.Deadline(); is && limit.Before(ends) {
		ends = limit
	}
	timeout := given(s.attemptTimeout, or(c.AttemptTimeout, 30*time.Second))
	isInDoubt := false
	for number := 1; ; number++ {
		id := r.idOf(number)
		left := time.Until(ends)
		if left > timeout {
			left = timeout
		}
		answer := c.attempt(ctx, r, id, left, keep)
		answer.attempts, answer.requestID = number, id
		verdict := judge(answer.facts(isRead(r.method)))
		sleep := time.Duration(-1)
		if verdict.retry && number <= retries && ctx.Err() == nil {
			sleep = c.pause(answer, uint64(number-1), ends)
		}
		if c.OnAttempt != nil {
			c.OnAttempt(Attempt{number, id, answer.status, answer.why, sleep})
		}
		if answer.effect = verdict.effect; isInDoubt && !verdict.settles &&
			answer.effect != EffectYes {
			answer.effect = EffectUnknown // "no" says nothing about earlier attempts
		}
		if sleep < 0 {
			return conclude(r, answer)
		}
		answer.drop()
		isInDoubt = isInDoubt || verdict.effect != EffectNo
		if err := doze(ctx, sleep); err != nil {
			answer.end, answer.why, answer.err = endLost, err.Error(), err
			if answer.effect = EffectNo; isInDoubt {
				answer.effect = EffectUnknown
			}
			return conclude(r, answer)
		}
	}
}

func given(value *time.Duration, otherwise time.Duration) time.Duration {
	if value == nil {
		return otherwise
	}
	return *value
}

func doze(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (c *Client) pause(answer *answer, retry uint64, ends time.Time) time.Duration {
	var random [8]byte
	randomBytes(random[:])
	ms := waitMs(pause{
		baseMs:  or(c.BackoffBase, 100*time.Millisecond).Milliseconds(),
		maxMs:   or(c.BackoffMax, 10*time.Second).Milliseconds(),
		retry:   retry,
		random:  binary.BigEndian.Uint64(random[:]),
		afterMs: retryAfter(answer.header).Milliseconds(),
		leftMs:  time.Until(ends).Milliseconds(),
	})
	if ms < 0 {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// conclude turns an attempt that got no answer into the error of the call.
func conclude(r *request, last *answer) (*answer, error) {
	if last.end == endAnswered {
		return last, nil
	}
	plural := "s"
	if last.attempts == 1 {
		plural = ""
	}
	after := fmt.Sprintf("after %d attempt%s: %s", last.attempts, plural, last.why)
	e := CallError{IdempotencyKey: r.key, RequestID: last.requestID, Attempts: last.attempts,
		Effect: last.effect, Cause: last.err}
	if last.effect == EffectNo {
		what := "cannot reach the server"
		if isRead(r.method) {
			what = "no answer"
		}
		e.Text = fmt.Sprintf("%s %s; nothing happened", what, after)
		return nil, &Unavailable{e}
	}
	e.Text = fmt.Sprintf("no answer %s; it may have happened, and the same key continues it", after)
	return nil, &NoAnswer{e}
}
