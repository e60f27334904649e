package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	reasonCharactersMax = 200
	leaseDefault        = 30 * time.Second // of Do, which renews it
	renewals            = 3                // in each lease: two may fail
)

// Fences are the fences of one Once server: begin, do the work, seal. Any number of goroutines may
// share them.
type Fences struct {
	URL    string
	Token  string  // "": none
	Client *Client // how Once is asked; nil: a client with the defaults
}

// NewFences: the URL is ONCE_URL, else http://127.0.0.1:7411, if it is empty; the token is
// ONCE_TOKEN, else none.
func NewFences(url string) *Fences {
	url = or(or(url, os.Getenv("ONCE_URL")), "http://127.0.0.1:7411")
	return &Fences{URL: url, Token: os.Getenv("ONCE_TOKEN"), Client: &Client{}}
}

// Begun is what Begin found: exactly one of Grant and Replay is set.
type Begun struct {
	Grant  *Grant
	Replay *Replay
}

// IsFirst: you hold the grant. Do the work, and end it.
func (b Begun) IsFirst() bool { return b.Grant != nil }

// Grant is the right to execute now. End it with Seal, Release or Unknown.
type Grant struct {
	OperationID    string
	Fence          int64
	Attempt        int
	LeaseExpiresAt string
	fences         *Fences
}

// Replay: it was done before, and this is its outcome.
type Replay struct {
	OperationID string          `json:"operation_id"`
	Status      string          `json:"status"` // executed, failed, rejected, compensated
	Outcome     json.RawMessage `json:"outcome"`
	EffectID    string          `json:"effect_id"`
	FirstSeenAt string          `json:"first_seen_at"`
	SealedAt    string          `json:"sealed_at"`
}

// Done is the outcome of fenced work that ran now or before.
type Done struct {
	Outcome     json.RawMessage
	IsReplayed  bool
	OperationID string
}

// Decode reads the outcome into value.
func (d *Done) Decode(value any) error { return json.Unmarshal(d.Outcome, value) }

// BeginOption is an option of Begin and Do.
type BeginOption func(members object)

type object = map[string]any

// KeyFrom derives the key from where a message came from: source_type, source_id, revision,
// index_hash, action. The key itself is then "".
func KeyFrom(source map[string]any) BeginOption { return member("key_from", source) }

// Fingerprint stands for the payload: 64 hexadecimal digits.
func Fingerprint(hex string) BeginOption { return member("fingerprint", hex) }

// Principal is who the key belongs to.
func Principal(principal string) BeginOption { return member("principal", principal) }

// TTL is how long duplicates are recognised.
func TTL(d time.Duration) BeginOption { return member("ttl", duration(d)) }

// Lease is how long the grant is held without being renewed. Do renews it.
func Lease(d time.Duration) BeginOption { return member("lease", duration(d)) }

// TakeOver: the next caller after the lease of a holder that is gone gets the grant again. For
// effects that are themselves idempotent.
func TakeOver() BeginOption { return member("on_unknown", "takeover") }

// Wait is how long a duplicate waits for an operation that still runs.
func Wait(d time.Duration) BeginOption { return member("wait", duration(d)) }

// Source is what the payload is a version of: an older version is refused.
func Source(kind, id string, version int64) BeginOption {
	return member("source", object{"type": kind, "id": id, "version": version})
}

// Trace is stored with the operation.
func Trace(trace map[string]any) BeginOption { return member("trace", trace) }

func member(name string, value any) BeginOption {
	return func(members object) { members[name] = value }
}

func duration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// Begin asks for the right to execute. The error is a *Conflict, *InProgress or *OutcomeUnknown;
// or an *Unavailable or *NoAnswer. If the answer to a begin is lost, its grant has no holder: the
// retry gets *InProgress until the lease ends, and *OutcomeUnknown then.
func (f *Fences) Begin(ctx context.Context, scope, key string, payload any,
	options ...BeginOption) (Begun, error) {
	return f.begin(ctx, scope, key, payload, judgeOnce, options)
}

func (f *Fences) begin(ctx context.Context, scope, key string, payload any,
	judge func(facts) verdict, options []BeginOption) (Begun, error) {
	members := object{"scope": scope}
	for _, option := range options {
		option(members)
	}
	if _, is := members["key_from"]; !is || key != "" {
		members["key"] = key
	}
	if _, is := members["fingerprint"]; !is {
		members["payload"] = payload
	}
	status, text, err := f.ask(ctx, "/v1/fences", members, judge)
	if err != nil {
		return Begun{}, err
	}
	return f.read(status, text)
}

func (f *Fences) read(status int, text []byte) (Begun, error) {
	var begun struct {
		Replay
		Decision       string `json:"decision"`
		Fence          int64  `json:"fence"`
		Attempt        int    `json:"attempt"`
		LeaseExpiresAt string `json:"lease_expires_at"`
		RetryAfterMs   int64  `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(text, &begun); err != nil {
		return Begun{}, f.odd("does not answer as Once does")
	}
	switch begun.Decision {
	case "first_seen":
		return Begun{Grant: &Grant{begun.OperationID, begun.Fence, begun.Attempt,
			begun.LeaseExpiresAt, f}}, nil
	case "duplicate_replayed":
		return Begun{Replay: &begun.Replay}, nil
	case "in_progress":
		return Begun{}, &InProgress{Problem{Status: status, Code: "in_progress",
			Effect: EffectUnknown, Detail: "somebody else holds the grant",
			OperationID: begun.OperationID,
			RetryAfter:  time.Duration(begun.RetryAfterMs) * time.Millisecond}}
	}
	return Begun{}, f.odd("does not answer as Once does")
}

func (f *Fences) odd(text string) error {
	return &Unavailable{CallError{Text: f.URL + " " + text, Effect: EffectNo}}
}

// ask sends a request to Once. Repeating one is always safe.
func (f *Fences) ask(ctx context.Context, path string, body any,
	judge func(facts) verdict) (int, []byte, error) {
	var s sending
	if f.Token != "" {
		s.headers = [][2]string{{"Authorization", "Bearer " + f.Token}}
	}
	request, err := newRequest("POST", strings.TrimRight(f.URL, "/")+path, body, &s)
	if err != nil {
		return 0, nil, fmt.Errorf("once: %w", err)
	}
	client := f.Client
	if client == nil {
		client = &defaultClient
	}
	answer, err := client.sendJudged(ctx, request, judge, &s)
	if err != nil {
		return 0, nil, err
	}
	if answer.Status < 300 {
		return answer.Status, answer.Body, nil
	}
	var document object
	if json.Unmarshal(answer.Body, &document) != nil || document == nil {
		return 0, nil, f.odd(fmt.Sprintf("answered %d, and not as Once does", answer.Status))
	}
	return 0, nil, problemOf(Problem{Status: answer.Status, Code: textOf(document, "code"),
		Effect: or(Effect(textOf(document, "effect")), EffectUnknown),
		Detail: textOf(document, "detail"), OperationID: textOf(document, "operation_id"),
		RetryAfter: retryAfter(answer.Header), Document: document})
}

// SealOption is an option of Seal.
type SealOption func(members object)

// Status of the outcome: executed (the default), failed or rejected.
func Status(status string) SealOption {
	return func(members object) { members["status"] = status }
}

// EffectID names the effect where it happened.
func EffectID(id string) SealOption { return func(members object) { members["effect_id"] = id } }

// Seal records the outcome, any JSON; every duplicate then gets it. Sealing the same again changes
// nothing and is not an error; sealing something different is an *AlreadySealed.
func (g *Grant) Seal(ctx context.Context, outcome any, options ...SealOption) error {
	members := object{"fence": g.Fence, "status": "executed"}
	if outcome != nil {
		members["outcome"] = outcome
	}
	for _, option := range options {
		option(members)
	}
	return g.end(ctx, "seal", members)
}

// Release: the effect certainly did not start. The key is free again.
func (g *Grant) Release(ctx context.Context, reason string) error {
	return g.end(ctx, "release", object{"fence": g.Fence, "reason": short(reason)})
}

// Unknown: nobody knows whether the effect happened. It is held until it is settled.
func (g *Grant) Unknown(ctx context.Context, reason string) error {
	return g.end(ctx, "unknown", object{"fence": g.Fence, "reason": short(reason)})
}

// Renew extends the lease, for work that takes longer.
func (g *Grant) Renew(ctx context.Context, lease time.Duration) error {
	return g.end(ctx, "renew", object{"fence": g.Fence, "lease": duration(lease)})
}

func (g *Grant) end(ctx context.Context, verb string, members object) error {
	_, _, err := g.fences.ask(ctx, "/v1/fences/"+g.OperationID+"/"+verb, members, judgeOnce)
	return err
}

// Resolve settles an unknown operation after a check. Status: executed, failed, not_executed.
func (f *Fences) Resolve(ctx context.Context, operationID, status, reason string,
	outcome any) error {
	members := object{"status": status, "reason": reason}
	if outcome != nil {
		members["outcome"] = outcome
	}
	_, _, err := f.ask(ctx, "/v1/operations/"+operationID+"/resolve", members, judgeOnce)
	return err
}

func short(reason string) string {
	kept := make([]rune, 0, reasonCharactersMax)
	for _, c := range reason {
		if !unicode.IsPrint(c) {
			c = ' '
		}
		if kept = append(kept, c); len(kept) == reasonCharactersMax {
			break
		}
	}
	return string(kept)
}

// --- Work ---

// Do runs the function once for this key, through goroutines, processes and crashes. What it
// returns is written as JSON and is the outcome of every duplicate. If it returns a *NotStarted the
// key is free again; a *Failed is final, and duplicates get it too; after any other error or a
// panic nobody knows, and the operation is held as unknown until somebody has checked.
//
// The lease (30 s unless Lease says otherwise) is renewed while the function runs. Its ctx ends
// with the caller's, and when somebody else has taken the operation over; GrantOf finds the grant
// in it. The outcome is recorded even if ctx has ended.
func (f *Fences) Do(ctx context.Context, scope, key string, payload any,
	work func(ctx context.Context) (any, error), options ...BeginOption) (*Done, error) {
	members := object{}
	for _, option := range options {
		option(members)
	}
	lease := leaseDefault
	if text, is := members["lease"].(string); is {
		lease, _ = time.ParseDuration(text)
	} else {
		options = append(options[:len(options):len(options)], Lease(lease))
	}
	begun, err := f.Begin(ctx, scope, key, payload, options...)
	if err != nil {
		return nil, err
	}
	if replay := begun.Replay; replay != nil {
		if replay.Status == "failed" || replay.Status == "rejected" {
			var outcome any
			_ = json.Unmarshal(replay.Outcome, &outcome)
			return nil, &Failed{outcome}
		}
		return &Done{compact(replay.Outcome), true, replay.OperationID}, nil
	}
	outcome, err := begun.Grant.perform(ctx, lease, work)
	if err != nil {
		return nil, err
	}
	return &Done{outcome, false, begun.Grant.OperationID}, nil
}

// compact gives the first call and every duplicate the same bytes.
func compact(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	var out bytes.Buffer
	if json.Compact(&out, text) != nil {
		return text
	}
	return out.Bytes()
}

type grantKey struct{}

// GrantOf returns the grant under which the work of Do, or a fenced handler, runs; nil: none.
func GrantOf(ctx context.Context) *Grant {
	grant, _ := ctx.Value(grantKey{}).(*Grant)
	return grant
}

func (g *Grant) perform(ctx context.Context, lease time.Duration,
	work func(ctx context.Context) (any, error)) (json.RawMessage, error) {
	inner, stop := g.hold(ctx, lease)
	after := detached{ctx} // what is done is recorded, even if the caller has left
	isOver := false
	defer func() {
		stop()
		if !isOver { // a panic continues, and so does runtime.Goexit
			g.leaveUnknown(after, "the work panicked")
		}
	}()
	value, err := work(inner)
	isOver = true
	stop()
	var notStarted *NotStarted
	var failed *Failed
	switch {
	case errors.As(err, &notStarted):
		return nil, firstOf(g.Release(after, notStarted.Error()), err)
	case errors.As(err, &failed):
		outcome, _ := json.Marshal(failed.Outcome)
		return nil, firstOf(g.record(after, outcome, "failed"), err)
	case err != nil:
		g.leaveUnknown(after, err.Error())
		return nil, err
	}
	outcome, err := json.Marshal(value)
	if err != nil {
		g.leaveUnknown(after, "the outcome is not JSON")
		return nil, fmt.Errorf("once: the outcome is not JSON: %w", err)
	}
	return outcome, g.record(after, outcome, "executed")
}

func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (g *Grant) record(ctx context.Context, outcome json.RawMessage, status string) error {
	if err := g.Seal(ctx, outcome, Status(status)); err != nil {
		return &NotSealed{outcome, g.OperationID, err}
	}
	return nil
}

// leaveUnknown: if Once cannot be reached, it becomes unknown when the lease ends. The caller's own
// error matters more.
func (g *Grant) leaveUnknown(ctx context.Context, reason string) { _ = g.Unknown(ctx, reason) }

// hold renews the lease until it is stopped. The context it gives ends when the grant is lost.
func (g *Grant) hold(ctx context.Context, lease time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, grantKey{}, g))
	renewing, cancelRenewing := context.WithCancel(detached{ctx})
	every := lease / renewals
	if every <= 0 {
		every = lease
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for doze(renewing, every) == nil {
			limited, free := context.WithTimeout(renewing, every)
			err := g.Renew(limited, lease)
			free()
			var stale *StaleFence
			var sealed *AlreadySealed
			if errors.As(err, &stale) || errors.As(err, &sealed) {
				cancel()
				return
			}
		}
	}()
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			cancelRenewing()
			<-over
			cancel()
		})
	}
}

// detached has the values of a context, and neither its end nor its deadline.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
