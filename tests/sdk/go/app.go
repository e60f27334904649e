package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"once.example/once"
)

const answerMax = 1000              // as applications.py has it
const slow = 500 * time.Millisecond // for duplicates to come; nothing depends on it

// shop is what the handlers do. What the test in another process asks goes by reads, which pass
// through the middleware: GET /calls, /reset, /hold, /let-go, /entered.
type shop struct {
	lock     sync.Mutex
	calls    map[string]int
	isInside bool
	isLarge  bool // inside a large answer
	gate     chan bool
}

func (s *shop) ask(name string) any {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch name {
	case "reset":
		s.calls, s.isInside, s.isLarge = map[string]int{}, false, false
	case "hold":
		s.gate = make(chan bool)
	case "let-go":
		close(s.gate)
	}
	calls := map[string]int{}
	for each, count := range s.calls {
		calls[each] = count
	}
	return map[string]any{"charges": calls["charges"], "calls": calls, "isInside": s.isInside,
		"isInsideLarge": s.isLarge}
}

func (s *shop) call(name string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.calls[name]++
	s.isInside = s.isInside || name == "held"
	return s.calls[name]
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "session=1")
	w.Header().Set("X-Kept", "yes")
	if r.Method == "GET" {
		must(json.NewEncoder(w).Encode(s.ask(name)))
		return
	}
	count := s.call(name)
	var order struct{ Cents *int }
	if json.NewDecoder(r.Body).Decode(&order) != nil || order.Cents == nil ||
		once.GrantOf(r.Context()) == nil && r.Header.Get("Idempotency-Key") != "" {
		panic("no body, or no grant")
	}
	switch name {
	case "crash":
		panic(http.ErrAbortHandler)
	case "end":
		status, err := strconv.Atoi(rest)
		must(err)
		w.WriteHeader(status)
		fmt.Fprint(w, `{"end":true}`)
		return
	case "bytes":
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte{0xff, 0, 0xfe})
		return
	case "slow":
		time.Sleep(slow)
	case "held":
		s.wait(false)
	case "pieces", "whole", "large":
		size, err := strconv.Atoi(rest)
		must(err)
		s.answer(w, name, size)
		return
	}
	w.WriteHeader(201)
	fmt.Fprintf(w, `{"charge":`) // in two pieces, as some handlers do
	fmt.Fprintf(w, `%d}`, count)
}

func (s *shop) wait(isLarge bool) {
	s.lock.Lock()
	gate := s.gate
	s.isLarge = s.isLarge || isLarge
	s.lock.Unlock()
	<-gate
}

// answer writes so many bytes. Of a large answer the last one waits.
func (s *shop) answer(w http.ResponseWriter, name string, size int) {
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(201)
	if name == "whole" {
		fmt.Fprint(w, strings.Repeat("a", size))
		return
	}
	for i := 1; i < size; i++ {
		fmt.Fprint(w, "a")
	}
	if name == "large" {
		s.wait(true)
	}
	fmt.Fprint(w, "a")
}

// recovering answers 500 for a handler that panicked, as the usual middleware does.
func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(500)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func serve(words []string) {
	fences := once.NewFences(words[1])
	fences.Client = &once.Client{Retries: 1, IdleMax: 64, Deadline: 110 * time.Second,
		AttemptTimeout: 100 * time.Second, ConnectTimeout: time.Minute}
	handlers := &once.Handlers{Fences: fences, Profile: words[2], AnswerMax: answerMax}
	shop := &shop{calls: map[string]int{}, gate: make(chan bool)}
	close(shop.gate)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	must(http.Serve(listener, recovering(handlers.Wrap(shop))))
}
