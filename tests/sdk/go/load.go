package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"once.example/once"
)

const (
	againEvery = 20
	failing    = 0.1             // the share of works that do not start, and of those that die
	deadline   = 5 * time.Minute // of one operation: none may need all of it
)

// plain has fresh connections alone, on which net/http repeats nothing.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

var errDied = errors.New("died after the effect")

// tally is what became of the operations so far.
type tally struct {
	lock    sync.Mutex
	answers *bufio.Writer
	figures map[string]int
}

func (t *tally) add(name string, count int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.figures[name] += count
}

func (t *tally) answer(key string, status int, body string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.figures["done"]++
	fmt.Fprintf(t.answers, "%s %d %s\n", key, status, body)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func run(operations, goroutines int, path string, operate func(*tally, int) error) {
	file, err := os.Create(path)
	must(err)
	t := &tally{answers: bufio.NewWriter(file), figures: map[string]int{"done": 0, "replayed": 0,
		"attempts": 0, "failures": 0, "checked": 0}}
	next := make(chan int)
	var group sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range next {
				if err := operate(t, n); err != nil {
					fmt.Fprintln(os.Stderr, n, err)
					t.add("failures", 1)
				}
			}
		}()
	}
	for n := 0; n < operations; n++ {
		next <- n
	}
	close(next)
	group.Wait()
	must(t.answers.Flush())
	must(file.Close())
	must(json.NewEncoder(os.Stdout).Encode(t.figures))
	if t.figures["failures"] > 0 {
		os.Exit(1)
	}
}

func loadGateway(words []string) {
	url, prefix := words[0], words[3]
	client := &once.Client{Retries: 1000, AttemptTimeout: 5 * time.Second,
		Deadline: time.Duration(number(words[4])) * time.Millisecond, IdleMax: number(words[2])}
	run(number(words[1]), number(words[2]), words[5], func(t *tally, n int) error {
		key := fmt.Sprintf("%s-%d", prefix, n)
		send := func() (*once.Response, error) {
			return client.Post(background, url, map[string]int{"n": n}, once.IdempotencyKey(key))
		}
		answer, err := send()
		if err != nil {
			return err
		}
		if answer.Status < 200 || answer.Status > 299 || answer.Effect != once.EffectYes {
			return fmt.Errorf("%d, %s", answer.Status, answer.Effect)
		}
		if answer.IsReplayed() {
			t.add("replayed", 1)
		}
		t.add("attempts", answer.Attempts)
		t.answer(key, answer.Status, answer.Text())
		if n%againEvery != 0 {
			return nil
		}
		again, err := send()
		if err == nil && (!again.IsReplayed() || again.Text() != answer.Text()) {
			err = fmt.Errorf("again: %d %s", again.Status, again.Body)
		}
		return err
	})
}

// provider is what is charged: the effects are its.
type provider string

func (p provider) get(method, path, key, body string) (int, json.RawMessage, error) {
	request, err := http.NewRequest(method, string(p)+path, strings.NewReader(body))
	must(err)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	answer, err := plain.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

func (p provider) charge(key string, n int) (any, error) {
	chance := rand.Float64()
	if chance < failing {
		return nil, &once.NotStarted{Reason: "not now"}
	}
	status, text, err := p.get("POST", "/charges", key, fmt.Sprintf(`{"n":%d}`, n))
	if err == nil && status >= 300 {
		err = fmt.Errorf("the provider answered %d", status)
	}
	if err == nil && chance > 1-failing {
		if n%2 == 0 {
			panic(errDied)
		}
		err = errDied
	}
	return text, err
}

// settle does what a person would do: look, and say what happened.
func (p provider) settle(fences *once.Fences, key, operationID string) error {
	status, text, err := p.get("GET", "/by-key/"+key, "", "")
	switch {
	case err != nil:
		return err
	case status == 200:
		return fences.Resolve(background, operationID, "executed", "it is there", text)
	case status == 404:
		return fences.Resolve(background, operationID, "not_executed", "it is not there", nil)
	}
	return fmt.Errorf("the provider answered %d", status)
}

// caught turns a panic of fenced work into its error.
func caught(do func() (*once.Done, error)) (done *once.Done, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fault.(error)
		}
	}()
	return do()
}

func loadFences(words []string) {
	fences, p := once.NewFences(words[0]), provider(words[1])
	fences.Client = &once.Client{Retries: 1000, Deadline: time.Minute,
		AttemptTimeout: 10 * time.Second}
	act := func(t *tally, key string, n int) (*once.Done, error) {
		for ends := time.Now().Add(deadline); time.Now().Before(ends); {
			t.add("attempts", 1)
			done, err := caught(func() (*once.Done, error) {
				return fences.Do(background, "charge", key, map[string]int{"n": n},
					func(context.Context) (any, error) { return p.charge(key, n) },
					once.Lease(time.Second), once.Wait(time.Second))
			})
			var unknown *once.OutcomeUnknown
			switch {
			case err == nil:
				return done, nil
			case errors.As(err, &unknown):
				t.add("checked", 1)
				var problem *once.Problem // an earlier try settled it
				err = p.settle(fences, key, unknown.OperationID)
				if err != nil && !errors.As(err, &problem) && !isRetried(err) {
					return nil, err
				}
			case !isRetried(err):
				return nil, err
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil, fmt.Errorf("%s does not end", key)
	}
	run(number(words[2]), number(words[3]), words[4], func(t *tally, n int) error {
		key := fmt.Sprintf("load-%d", n)
		done, err := act(t, key, n)
		if err != nil {
			return err
		}
		if done.IsReplayed {
			t.add("replayed", 1)
		}
		t.answer(key, 200, string(done.Outcome))
		if n%againEvery != 0 {
			return nil
		}
		again, err := act(t, key, n)
		if err == nil && (!again.IsReplayed || string(again.Outcome) != string(done.Outcome)) {
			err = fmt.Errorf("again: %s, not %s", again.Outcome, done.Outcome)
		}
		return err
	})
}

func isRetried(err error) bool {
	var progress *once.InProgress
	var notStarted *once.NotStarted
	var notSealed *once.NotSealed
	var call *once.CallError
	return errors.As(err, &progress) || errors.As(err, &notStarted) ||
		errors.As(err, &notSealed) || errors.As(err, &call) || errors.Is(err, errDied)
}
