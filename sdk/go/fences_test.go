package once

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fences against the server at ONCE_TEST_URL.
func fencesFor(t *testing.T) (*Fences, string) {
	t.Helper()
	url := os.Getenv("ONCE_TEST_URL")
	if url == "" {
		t.Skip("ONCE_TEST_URL is not set")
	}
	return NewFences(url), uuid4()
}

func returning(value any, err error) func(context.Context) (any, error) {
	return func(context.Context) (any, error) { return value, err }
}

func never(t *testing.T) func(context.Context) (any, error) {
	return func(context.Context) (any, error) {
		t.Error("it ran")
		return nil, nil
	}
}

// is fails the test unless err is an error of that type, which it returns.
func is[T error](t *testing.T, err error) T {
	t.Helper()
	var wanted T
	if !errors.As(err, &wanted) {
		t.Fatalf("%T: %v, not %T", err, err, wanted)
	}
	return wanted
}

func statusOf(t *testing.T, fences *Fences, key string) string {
	t.Helper()
	answer, err := fences.Client.Get(background, fences.URL+"/v1/operations?key="+key)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Operations []struct{ Status string }
	}
	if err := answer.JSON(&page); err != nil || len(page.Operations) != 1 {
		t.Fatal(err, answer.Text())
	}
	return page.Operations[0].Status
}

func TestFencedWorkIsDoneOnce(t *testing.T) {
	fences, key := fencesFor(t)
	order := map[string]int{"cents": 1}
	work := func(ctx context.Context) (any, error) {
		if grant := GrantOf(ctx); grant == nil || grant.Fence < 1 {
			t.Error("no grant")
		}
		return map[string]any{"b": "<&>", "a": []int{1, 2}}, nil
	}
	first, err := fences.Do(background, "charge", key, order, work)
	equal(t, err, nil)
	again, err := fences.Do(background, "charge", key, order, never(t))
	equal(t, err, nil)
	if first.IsReplayed || !again.IsReplayed || first.OperationID != again.OperationID {
		t.Error(first, again)
	}
	var one, other any
	equal(t, first.Decode(&one), nil)
	equal(t, again.Decode(&other), nil)
	equal(t, one, other)
	conflict := is[*Conflict](t, func() error {
		_, err := fences.Do(background, "charge", key, map[string]int{"cents": 2}, never(t))
		return err
	}())
	diff, _ := json.Marshal(conflict.Document["diff"])
	equal(t, string(diff), `[{"op":"replace","path":"/cents","value":2}]`)
	equal(t, conflict.Effect, EffectNo)
	equal(t, is[*Problem](t, conflict).Status, 409)
}

func TestFencedWorkThatDidNotStartMayBeTriedAgain(t *testing.T) {
	fences, key := fencesFor(t)
	_, err := fences.Do(background, "charge", key, 1, returning(nil, &NotStarted{"no connection"}))
	is[*NotStarted](t, err)
	equal(t, statusOf(t, fences, key), "released")
	done, err := fences.Do(background, "charge", key, 1, returning("done", nil))
	equal(t, err, nil)
	equal(t, string(done.Outcome), `"done"`)
}

func TestFencedWorkThatFailedIsFinal(t *testing.T) {
	fences, key := fencesFor(t)
	why := map[string]any{"why": "no money"}
	_, err := fences.Do(background, "charge", key, 1, returning(nil, &Failed{why}))
	equal(t, is[*Failed](t, err).Outcome, any(why))
	_, err = fences.Do(background, "charge", key, 1, never(t))
	equal(t, is[*Failed](t, err).Outcome, any(why))
}

func TestFencedWorkThatEndedOddlyIsUnknown(t *testing.T) {
	fences, _ := fencesFor(t)
	timeout := errors.New("timed out\n")
	for name, do := range map[string]func(key string){
		"an error": func(key string) {
			_, err := fences.Do(background, "charge", key, 1, returning(nil, timeout))
			equal(t, err, timeout)
		},
		"a panic": func(key string) {
			defer func() { equal(t, recover(), any("crashed")) }()
			_, _ = fences.Do(background, "charge", key, 1,
				func(context.Context) (any, error) { panic("crashed") })
		},
		"an exit": func(key string) {
			var group sync.WaitGroup
			group.Add(1)
			go func() {
				defer group.Done()
				_, _ = fences.Do(background, "charge", key, 1,
					func(context.Context) (any, error) { runtime.Goexit(); return nil, nil })
			}()
			group.Wait()
		},
		"cancellation": func(key string) {
			ctx, cancel := context.WithCancel(background)
			_, err := fences.Do(ctx, "charge", key, 1, func(ctx context.Context) (any, error) {
				cancel()
				<-ctx.Done()
				return nil, ctx.Err()
			})
			equal(t, err, context.Canceled)
		},
		"an outcome that is not JSON": func(key string) {
			_, err := fences.Do(background, "charge", key, 1, returning(func() {}, nil))
			if err == nil {
				t.Error("it has JSON")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := uuid4()
			do(key)
			equal(t, statusOf(t, fences, key), "unknown")
			_, err := fences.Do(background, "charge", key, 1, never(t))
			unknown := is[*OutcomeUnknown](t, err)
			equal(t, unknown.Effect, EffectUnknown)
			equal(t, fences.Resolve(background, unknown.OperationID, "executed", "it is there",
				map[string]int{"id": 7}), nil)
			done, err := fences.Do(background, "charge", key, 1, never(t))
			equal(t, err, nil)
			equal(t, string(done.Outcome), `{"id":7}`)
		})
	}
}

func TestFencedWorkThatIsDoneIsSealedThoughTheCallerLeft(t *testing.T) {
	fences, key := fencesFor(t)
	ctx, cancel := context.WithCancel(background)
	done, err := fences.Do(ctx, "charge", key, 1, func(context.Context) (any, error) {
		cancel()
		return "done", nil
	})
	equal(t, err, nil)
	equal(t, string(done.Outcome), `"done"`)
	equal(t, statusOf(t, fences, key), "executed")
}

func TestFenceByHand(t *testing.T) {
	fences, key := fencesFor(t)
	begun, err := fences.Begin(background, "mail", key, 1, Lease(5*time.Second))
	equal(t, err, nil)
	first := begun.Grant
	_, err = fences.Begin(background, "mail", key, 1)
	if is[*InProgress](t, err).RetryAfter <= 0 {
		t.Error(err)
	}
	equal(t, first.Release(background, "not yet"), nil)
	begun, err = fences.Begin(background, "mail", key, 1)
	equal(t, err, nil)
	second := begun.Grant
	if second.Fence <= first.Fence || !begun.IsFirst() {
		t.Error(first, second)
	}
	is[*StaleFence](t, first.Seal(background, "late"))
	equal(t, second.Renew(background, time.Minute), nil)
	for i := 0; i < 2; i++ {
		equal(t, second.Seal(background, "in time", EffectID("m-1")), nil)
	}
	is[*AlreadySealed](t, second.Seal(background, "different"))
	begun, err = fences.Begin(background, "mail", key, 1)
	equal(t, err, nil)
	replay := begun.Replay
	equal(t, []string{replay.Status, string(replay.Outcome), replay.EffectID},
		[]string{"executed", `"in time"`, "m-1"})
}

func TestFenceWithAKeyFromASource(t *testing.T) {
	fences, id := fencesFor(t)
	source := map[string]any{"source_type": "stripe", "source_id": id, "revision": 3}
	begun, err := fences.Begin(background, "hook", "", 1, KeyFrom(source))
	equal(t, err, nil)
	equal(t, begun.Grant.Seal(background, nil), nil)
	source["tenant_id"] = "default"
	key, err := SourceKey(source)
	equal(t, err, nil)
	equal(t, statusOf(t, fences, key), "executed")
}

func TestFencedByManyAtOnceItIsDoneOnce(t *testing.T) {
	fences, key := fencesFor(t)
	var lock sync.Mutex
	calls, outcomes := 0, map[string]int{}
	var group sync.WaitGroup
	for i := 0; i < 16; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			done, err := fences.Do(background, "charge", key, 1,
				func(context.Context) (any, error) {
					lock.Lock()
					defer lock.Unlock()
					calls++
					return calls, nil
				}, Wait(30*time.Second))
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			outcomes[string(done.Outcome)]++
		}()
	}
	group.Wait()
	equal(t, outcomes, map[string]int{"1": 16})
}

// A lease that is renewed outlives many of its lengths. No test of how fast: if the machine stalls
// for a whole lease the work is told so, and begun again.
func TestFenceIsHeldWhileTheWorkRuns(t *testing.T) {
	fences, _ := fencesFor(t)
	for try := 0; ; try++ {
		key := uuid4()
		done, err := fences.Do(background, "charge", key, 1,
			func(context.Context) (any, error) {
				time.Sleep(1500 * time.Millisecond)
				return "done", nil
			}, Lease(500*time.Millisecond))
		if err == nil {
			equal(t, string(done.Outcome), `"done"`)
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// fake is a server that grants, counts renewals and answers them as it is told.
type fake struct {
	*httptest.Server
	renewals chan string
	renew    int // the status
}

func newFake(t *testing.T, renew int) *fake {
	f := &fake{renewals: make(chan string, 1000), renew: renew}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/v1/fences":
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"decision":"first_seen","operation_id":"op","fence":7}`)
		case strings.HasSuffix(r.URL.Path, "/renew"):
			f.renewals <- string(body)
			w.WriteHeader(f.renew)
			_, _ = io.WriteString(w, `{"code":"stale_fence","effect":"no"}`)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func TestFenceIsRenewed(t *testing.T) {
	server := newFake(t, 200)
	_, err := NewFences(server.URL).Do(background, "charge", "k", 1,
		func(context.Context) (any, error) {
			for i := 0; i < 3; i++ {
				equal(t, <-server.renewals, `{"fence":7,"lease":"60ms"}`)
			}
			return nil, nil
		}, Lease(60*time.Millisecond))
	equal(t, err, nil)
	for len(server.renewals) > 0 {
		<-server.renewals
	}
	time.Sleep(100 * time.Millisecond)
	equal(t, len(server.renewals), 0) // and not after its end
}

func TestFenceThatIsLostEndsTheContextOfTheWork(t *testing.T) {
	_, err := NewFences(newFake(t, 409).URL).Do(background, "charge", "k", 1,
		func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, Lease(60*time.Millisecond))
	equal(t, err, context.Canceled)
}

func TestFenceWithoutAServer(t *testing.T) {
	fences := NewFences("http://127.0.0.1:1")
	fences.Client = &Client{Retries: 1}
	_, err := fences.Do(background, "charge", "k", 1, never(t))
	equal(t, is[*Unavailable](t, err).Attempts, 2)
	odd := httptest.NewServer(http.NotFoundHandler())
	defer odd.Close()
	_, err = NewFences(odd.URL).Begin(background, "charge", "k", 1)
	is[*Unavailable](t, err)
}

func TestFencedWorkThatCannotBeRecordedIsSaid(t *testing.T) {
	server := newFake(t, 200)
	fences := NewFences(server.URL)
	fences.Client = &Client{Retries: NoRetries}
	_, err := fences.Do(background, "charge", "k", 1, func(context.Context) (any, error) {
		server.Close()
		return 7, nil
	})
	equal(t, string(is[*NotSealed](t, err).Outcome), "7")
}

func TestFencedHandlerAnswersThatAreLargeGoThrough(t *testing.T) {
	fences, key := fencesFor(t)
	large := strings.Repeat("a", 1000)
	handlers := &Handlers{Fences: fences, AnswerMax: 999}
	server := httptest.NewServer(handlers.Wrap(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			for i := 0; i < 1000; i++ {
				_, _ = io.WriteString(w, large[:1])
			}
		})))
	defer server.Close()
	client := &Client{}
	answer, err := client.Post(background, server.URL, nil, IdempotencyKey(key))
	equal(t, err, nil)
	equal(t, []any{answer.Status, answer.Text(), answer.Decision()}, []any{201, large, "first_seen"})
	answer, err = client.Post(background, server.URL, nil, IdempotencyKey(key))
	equal(t, err, nil)
	equal(t, []any{answer.Status, answer.Effect}, []any{410, EffectYes})
	handlers.BodyBytesMax = 3
	small := httptest.NewServer(handlers.Wrap(http.NotFoundHandler()))
	defer small.Close()
	answer, err = client.Post(background, small.URL, "abcd", IdempotencyKey(uuid4()))
	equal(t, err, nil)
	equal(t, answer.Status, 413)
}

func TestFencedHandlerFinishesThoughTheClientLeft(t *testing.T) {
	fences, key := fencesFor(t)
	inside, left := make(chan bool), make(chan bool)
	handlers := &Handlers{Fences: fences}
	server := httptest.NewServer(handlers.Wrap(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			close(inside)
			<-left
			if r.Context().Err() != nil {
				t.Error("the handler was told to stop")
			}
			_, _ = io.WriteString(w, "done")
		})))
	defer server.Close()
	ctx, cancel := context.WithCancel(background)
	go func() { <-inside; cancel() }()
	client := &Client{Retries: NoRetries}
	_, err := client.Post(ctx, server.URL, nil, IdempotencyKey(key))
	is[*NoAnswer](t, err)
	close(left)
	answer, err := client.Post(background, server.URL, nil, IdempotencyKey(key))
	equal(t, err, nil)
	equal(t, []any{answer.Text(), answer.IsReplayed(), answer.Header.Get("Content-Type")},
		[]any{"done", true, "text/plain; charset=utf-8"})
}

func TestFencedHandlersThatCannotBe(t *testing.T) {
	for _, handlers := range []*Handlers{{Profile: "odd"}, {Profile: "guardia", TTL: time.Hour},
		{OnStatus: map[int]string{500: "odd"}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v", handlers)
				}
			}()
			handlers.Wrap(http.NotFoundHandler())
		}()
	}
}
