package once

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

var background = context.Background()

// wire is a server that shows the bytes of what it gets. The first request of each connection is
// answered; on the second it hangs up, as a server does whose idle timeout passed just then.
type wire struct {
	net.Listener
	lock     sync.Mutex
	requests []string
}

func newWire(t *testing.T) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go w.serve(connection)
		}
	}()
	return w
}

func (w *wire) serve(connection net.Conn) {
	defer connection.Close()
	var seen bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(connection, &seen))
	for number := 0; number < 2; number++ {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		w.lock.Lock()
		w.requests = append(w.requests, seen.String())
		w.lock.Unlock()
		seen.Reset()
		if number == 0 {
			fmt.Fprint(connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
}

func (w *wire) url() string { return "http://" + w.Addr().String() + "/charges" }

func (w *wire) seen() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return append([]string(nil), w.requests...)
}

func TestNetHTTPWouldRepeatIt(t *testing.T) {
	w := newWire(t)
	client := &http.Client{Transport: &http.Transport{}}
	for i := 0; i < 2; i++ {
		request, _ := http.NewRequest("POST", w.url(), strings.NewReader("{}"))
		request.Header.Set("Idempotency-Key", "k")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	if len(w.seen()) != 3 {
		t.Skip("this version of net/http does not: " + fmt.Sprint(len(w.seen())))
	}
}

func TestARequestIsSentOnceOnAConnectionThatDies(t *testing.T) {
	calls := map[string]func(*Client, string) error{
		"a body": func(c *Client, url string) error {
			_, err := c.Post(background, url, "{}", IdempotencyKey("k"))
			return err
		},
		"an empty body": func(c *Client, url string) error {
			_, err := c.Post(background, url, nil, IdempotencyKey("k"))
			return err
		},
		"a second name of the field": func(c *Client, url string) error {
			_, err := c.Post(background, url, nil, Header("X-Idempotency-Key", "k"))
			return err
		},
		"GET": func(c *Client, url string) error { _, err := c.Get(background, url); return err },
		"TRACE": func(c *Client, url string) error {
			_, err := c.Send(background, "TRACE", url, nil)
			return err
		},
		"DELETE": func(c *Client, url string) error {
			_, err := c.Delete(background, url, IdempotencyKey("k"))
			return err
		},
		"Transport": func(c *Client, url string) error {
			request, _ := http.NewRequest("POST", url, strings.NewReader("{}")) // it has GetBody
			request.Header.Set("Idempotency-Key", "k")
			response, err := (&http.Client{Transport: &Transport{c}}).Do(request)
			if err == nil {
				response.Body.Close()
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			client := &Client{Retries: NoRetries}
			if err := call(client, w.url()); err != nil {
				t.Fatal(err)
			}
			err := call(client, w.url())
			var lost *CallError
			if !errors.As(err, &lost) || lost.Attempts != 1 || len(w.seen()) != 2 {
				t.Fatalf("%v after %d requests", err, len(w.seen()))
			}
			isRead := name == "GET" || name == "TRACE"
			if (lost.Effect == EffectNo) != isRead {
				t.Fatal(lost.Effect)
			}
			client.Retries = 1 // and if it is repeated, it says so
			attempts := []Attempt{}
			client.OnAttempt = func(a Attempt) { attempts = append(attempts, a) }
			for len(attempts) < 2 { // on a kept connection the first attempt is lost
				attempts = nil
				if err := call(client, w.url()); err != nil {
					t.Fatal(err)
				}
			}
			for _, a := range attempts {
				if !strings.Contains(strings.Join(w.seen(), ""), "Request-Id: "+a.RequestID) {
					t.Fatal(a)
				}
			}
			if attempts[0].RequestID == attempts[1].RequestID {
				t.Fatal(attempts)
			}
		})
	}
}

func TestWhatIsOnTheWire(t *testing.T) {
	const always = "Request-Id,User-Agent"
	const written = always + ",Content-Type,idempotency-key"
	for _, one := range []struct {
		method string
		body   any
		fields string
		end    string
	}{
		{"GET", nil, always, ""},
		{"HEAD", nil, always, ""},
		{"TRACE", nil, always, ""},
		{"DELETE", nil, always + ",idempotency-key", ""},
		{"POST", nil, written + ",Content-Length: 0", ""},
		{"PUT", []byte("ab"), written + ",Content-Length: 2", "ab"},
		{"POST", map[string]int{"a": 1}, written + ",Content-Length: 7", `{"a":1}`},
	} {
		w := newWire(t)
		client := &Client{Retries: NoRetries}
		if _, err := client.Send(background, one.method, w.url(), one.body); err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(w.seen()[0], "\r\n\r\n")
		for _, line := range strings.Split(head, "\r\n")[1:] {
			name, _, _ := strings.Cut(line, ":")
			if name != "Host" && !strings.Contains(one.fields+",", name) {
				t.Errorf("%s: %s", one.method, line)
			}
		}
		for _, field := range strings.Split(one.fields, ",") {
			if !strings.Contains(head, "\r\n"+field) {
				t.Errorf("%s has no %s:\n%s", one.method, field, head)
			}
		}
		if body != one.end {
			t.Errorf("%s: %q", one.method, body)
		}
	}
}

func TestCancellation(t *testing.T) {
	inside, end := make(chan bool, 8), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- true
		if r.URL.Path == "/busy" {
			w.WriteHeader(503)
			return
		}
		<-end
	}))
	defer server.Close()
	defer close(end)
	client := &Client{BackoffBase: time.Hour, BackoffMax: time.Hour, Deadline: 3 * time.Hour}
	for path, effect := range map[string]Effect{"/silent": EffectUnknown, "/busy": EffectUnknown} {
		ctx, cancel := context.WithCancel(background)
		go func() { <-inside; cancel() }()
		answer, err := client.Post(ctx, server.URL+path, nil)
		var call *CallError
		if path == "/busy" && answer != nil { // it ended before the pause began
			continue
		}
		if !errors.Is(err, context.Canceled) || !errors.As(err, &call) || call.Effect != effect {
			t.Errorf("%s: %v", path, err)
		}
		var lost *NoAnswer
		if !errors.As(err, &lost) || lost.IdempotencyKey == "" || lost.Attempts != 1 {
			t.Errorf("%s: %v", path, err)
		}
	}
	over, cancel := context.WithCancel(background)
	cancel()
	_, err := client.Post(over, server.URL, nil)
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v: nothing was sent", err)
	}
	late, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	var lost *NoAnswer
	if _, err = client.Post(late, server.URL, nil); !errors.As(err, &lost) &&
		!errors.As(err, &unavailable) {
		t.Error(err)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/headers" {
			w.Header().Set("X-A", strings.Repeat("a", headersBytesMax))
		}
		_, _ = w.Write(bytes.Repeat([]byte("a"), 100))
	}))
	defer server.Close()
	client := &Client{BodyBytesMax: 99}
	answer, err := client.Post(background, server.URL, nil)
	if err != nil || !answer.IsBodyLost || answer.Body != nil || answer.Effect != EffectYes {
		t.Error(answer, err)
	}
	if answer, err = client.Get(background, server.URL+"/headers"); err == nil {
		t.Error(answer.Status)
	}
	var lost *NoAnswer
	_, err = client.Post(background, server.URL+"/headers", nil)
	if !errors.As(err, &lost) || lost.Attempts != 1 {
		t.Error(err)
	}
	response, err := (&http.Client{Transport: &Transport{client}}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || len(body) != 100 {
		t.Error(len(body), err) // what is not kept streams
	}
	_, err = (&http.Client{Transport: &Transport{client}}).Post(server.URL, "text/plain",
		io.MultiReader(bytes.NewReader(make([]byte, 100))))
	if err == nil || !strings.Contains(err.Error(), "BodyBytesMax") {
		t.Error(err)
	}
}

func TestACertificateIsNoBetterNextTime(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	defer server.Close()
	_, err := (&Client{}).Post(background, server.URL, nil)
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) || unavailable.Attempts != 1 {
		t.Error(err)
	}
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	if answer, err := (&Client{TLS: trusting}).Post(background, server.URL, nil); err != nil ||
		answer.Status != 404 {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestABaseThatReportsNothingMayHaveSent(t *testing.T) {
	client := &Client{Retries: NoRetries, Base: roundTripper(
		func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") })}
	_, err := client.Post(background, "http://127.0.0.1/", nil)
	var lost *NoAnswer
	if !errors.As(err, &lost) {
		t.Error(err)
	}
}

func TestTransport(t *testing.T) {
	var lock sync.Mutex
	keys, ids, bodies := []string{}, []string{}, []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		body, _ := io.ReadAll(r.Body)
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		ids = append(ids, r.Header.Get("Request-Id"))
		bodies = append(bodies, string(body))
		switch {
		case r.URL.Path == "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case len(keys)%2 == 1:
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		default:
			w.Header().Set("Idempotent-Replayed", "true")
			fmt.Fprint(w, "whole")
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &Transport{&Client{BackoffBase: time.Millisecond}}}
	for name, body := range map[string]io.Reader{"with GetBody": strings.NewReader("abc"),
		"without": io.MultiReader(strings.NewReader("abc"))} {
		keys, ids, bodies = nil, nil, nil
		response, err := client.Post(server.URL, "text/plain", body)
		if err != nil {
			t.Fatal(name, err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		call, is := CallOf(response)
		if !is || err != nil || string(text) != "whole" || call.Attempts != 2 || !call.IsReplayed ||
			call.Effect != EffectYes || call.IdempotencyKey != keys[0] || call.RequestID != ids[1] {
			t.Error(name, string(text), err, call, keys, ids)
		}
		if keys[0] != keys[1] || ids[0] == ids[1] || bodies[0] != "abc" || bodies[1] != "abc" {
			t.Error(name, keys, ids, bodies)
		}
	}
	request, _ := http.NewRequest("PUT", server.URL, nil)
	request.Header.Set("Idempotency-Key", `"order 7"`)
	request.Header.Set("Request-Id", "r")
	keys, ids = nil, nil
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if call, _ := CallOf(response); call.IdempotencyKey != "order 7" || keys[1] != `"order 7"` ||
		ids[0] != "r" || ids[1] != "r.2" || request.Header.Get("Request-Id") != "r" {
		t.Error(call, keys, ids)
	}
	request.Header.Set("Idempotency-Key", "a b")
	if _, err := client.Do(request); err == nil {
		t.Error("a key that is none was sent")
	}
	events, err := client.Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(events.Body).ReadString('\n')
	events.Body.Close()
	if err != nil || line != "data: 1\n" {
		t.Error(line, err)
	}
	if _, is := CallOf(&http.Response{}); is {
		t.Error("nobody sent that")
	}
}
