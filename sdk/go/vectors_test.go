package once

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The cases that every SDK runs (tests/vectors of the source; the module alone does not have them).
const vectors = "../../tests/vectors"

func read(t *testing.T, name string) []byte {
	t.Helper()
	if _, err := os.Stat(vectors); err != nil {
		t.Skip("the vectors are in the source, not in the module")
	}
	text, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// each runs the cases of one list of a file.
func each[T any](t *testing.T, file, list string, check func(t *testing.T, one T)) {
	t.Helper()
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(read(t, file), &lists); err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(lists[list], &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 3 {
		t.Fatalf("%s has %d cases in %s", file, len(cases), list)
	}
	for i, one := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) { check(t, one) })
	}
}

func equal(t *testing.T, got, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("%v, not %v", got, wanted)
	}
}

func TestVerdicts(t *testing.T) {
	each(t, "sdk/verdicts.json", "cases", func(t *testing.T, one struct {
		Method, End, Decision string
		Status                int
		Replayed              bool
		Body                  any
		Retry, Settles        bool
		Effect                Effect
	}) {
		equal(t, judge(facts{end: one.End, isRead: isRead(one.Method), status: one.Status,
			isReplayed: one.Replayed, decision: one.Decision, document: one.Body}),
			verdict{one.Retry, one.Settles, one.Effect})
	})
}

func TestWaits(t *testing.T) {
	each(t, "sdk/waits.json", "waits", func(t *testing.T, one struct {
		Base   int64 `json:"base_ms"`
		Max    int64 `json:"max_ms"`
		After  int64 `json:"after_ms"`
		Left   int64 `json:"left_ms"`
		Wait   int64 `json:"wait_ms"`
		Retry  uint64
		Random string
	}) {
		random, err := strconv.ParseUint(one.Random, 10, 64)
		equal(t, err, nil)
		equal(t, waitMs(pause{baseMs: one.Base, maxMs: one.Max, afterMs: one.After,
			leftMs: one.Left, retry: one.Retry, random: random}), one.Wait)
	})
	each(t, "sdk/waits.json", "retry_after", func(t *testing.T, one struct {
		Text string
		Now  int64 `json:"now_ms"`
		Ms   int64
	}) {
		equal(t, retryAfterMs(one.Text, one.Now), one.Ms)
	})
}

func TestRequests(t *testing.T) {
	each(t, "sdk/requests.json", "cases", func(t *testing.T, one struct {
		Method, URL, Error string
		Key                *string
		RequestID          *string `json:"request_id"`
		Headers            map[string]string
		Sent               map[string]*string
		IDs                []string
	}) {
		s := sending{key: one.Key, requestID: one.RequestID}
		for name, value := range one.Headers {
			s.headers = append(s.headers, [2]string{name, value})
		}
		r, err := newRequest(one.Method, one.URL, nil, &s)
		if one.Error != "" {
			if err == nil || !strings.Contains(err.Error(), one.Error) {
				t.Fatalf("%v has no word of %s", err, one.Error)
			}
			return
		}
		equal(t, err, nil)
		for name, value := range one.Sent {
			got, is := r.header.Get(name), len(r.header.Values(name)) > 0
			if is != (value != nil) || is && got != *value {
				t.Fatalf("%s: %q", name, got)
			}
		}
		for i, id := range one.IDs {
			equal(t, r.idOf(i+1), id)
		}
	})
}

func canonicalOf(text []byte) (string, error) {
	value, err := Parse(text)
	if err != nil {
		return "", err
	}
	canonical, err := Canonical(value)
	return string(canonical), err
}

func TestCanonical(t *testing.T) {
	each(t, "sdk/canonical.json", "cases", func(t *testing.T, one struct {
		Name, Input, Canonical string
		Error                  bool
	}) {
		got, err := canonicalOf([]byte(one.Input))
		if (err != nil) != one.Error || got != one.Canonical {
			t.Fatalf("%s: %q, %v", one.Name, got, err)
		}
	})
	read(t, "jcs/ORIGIN.md")
	paths, _ := filepath.Glob(vectors + "/jcs/input/*.json")
	if len(paths) < 5 {
		t.Fatal(paths)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		// The suite's own inputs have numbers of more digits than a double holds.
		var value any
		equal(t, json.Unmarshal(read(t, "jcs/input/"+name), &value), nil)
		got, err := Canonical(value)
		equal(t, err, nil)
		equal(t, string(got), strings.TrimRight(string(read(t, "jcs/output/"+name)), "\n"))
	}
}

func TestNumbers(t *testing.T) {
	lines := strings.Fields(string(read(t, "numbers/es.txt")))
	if len(lines) < 10000 {
		t.Fatal(len(lines))
	}
	for _, line := range lines {
		hex, wanted, _ := strings.Cut(line, ",")
		bits, err := strconv.ParseUint(hex, 16, 64)
		equal(t, err, nil)
		got, err := Canonical(math.Float64frombits(bits))
		if err != nil || string(got) != wanted {
			t.Fatalf("%s: %s, %v", line, got, err)
		}
		if again, err := canonicalOf(got); err != nil || again != wanted {
			t.Fatalf("%s read again: %s, %v", line, again, err)
		}
	}
}

func TestKeys(t *testing.T) {
	kinds := map[string]func(any) (string, error){"command": CommandKey, "effect": EffectKey,
		"source": SourceKey}
	for kind, derive := range kinds {
		each(t, "keys/"+kind+".json", "cases", func(t *testing.T, one struct {
			Name, Input, Error, SHA256 string
		}) {
			value, err := Parse([]byte(one.Input))
			key := ""
			if err == nil {
				key, err = derive(value)
			}
			if key != one.SHA256 || (err != nil) != (one.Error != "") ||
				err != nil && !strings.Contains(err.Error(), one.Error) {
				t.Fatalf("%s: %q, %v", one.Name, key, err)
			}
		})
	}
}

func TestWhatEncodingJSONWouldMend(t *testing.T) {
	type order struct {
		Text string `json:"text"`
		Big  int64  `json:"big"`
	}
	for _, value := range []any{"\xff", order{Text: "\xff"}, &order{Big: 1<<53 + 1},
		map[string]string{"\xff": ""}, map[string]any{"a": []string{"\xff"}}, math.NaN(),
		map[string]any{"a": math.Inf(1)}, func() {}} {
		if text, err := Canonical(value); err == nil {
			t.Errorf("%v is %s", value, text)
		}
	}
	got, err := Canonical(&order{"<\u2028", 1 << 53})
	equal(t, err, nil)
	equal(t, string(got), `{"big":9007199254740992,"text":"<`+"\u2028"+`"}`)
	deep := strings.Repeat("[", depthMax+1) + strings.Repeat("]", depthMax+1)
	if _, err := Parse([]byte(deep)); err == nil {
		t.Error("too deep, and read")
	}
	if _, err := Parse([]byte(deep[1 : len(deep)-1])); err != nil {
		t.Error(err)
	}
}

func TestHandlersVectors(t *testing.T) {
	each(t, "sdk/handlers.json", "keys", func(t *testing.T, one struct {
		Field, Key string
		Error      bool
	}) {
		key, is := keyOf([]string{one.Field})
		if is == one.Error || is && key != one.Key {
			t.Fatalf("%q: %q, %v", one.Field, key, is)
		}
	})
	each(t, "sdk/handlers.json", "paths", func(t *testing.T, one struct{ Raw, Path string }) {
		equal(t, canonicalPath([]byte(one.Raw)), one.Path)
	})
	each(t, "sdk/handlers.json", "fingerprints", func(t *testing.T, one struct {
		Method, Path, Query, Body, SHA256 string
		ContentType                       string `json:"content_type"`
	}) {
		equal(t, fingerprint(one.Method, one.Path, one.Query, one.ContentType, []byte(one.Body)),
			one.SHA256)
	})
	each(t, "sdk/handlers.json", "ends", func(t *testing.T, one struct {
		Status int
		End    string
	}) {
		equal(t, endOf(one.Status, nil, false), one.End)
	})
	each(t, "sdk/handlers.json", "outcomes", func(t *testing.T, one struct {
		Status  int
		Headers [][2]string
		Body    string `json:"body_base64"`
		ID      string `json:"request_id"`
		Outcome any
	}) {
		body, err := base64.StdEncoding.DecodeString(one.Body)
		equal(t, err, nil)
		text, err := json.Marshal(outcomeOf(one.Status, one.Headers, body, one.ID))
		equal(t, err, nil)
		var got any
		equal(t, json.Unmarshal(text, &got), nil)
		equal(t, got, one.Outcome)
	})
	if _, is := keyOf([]string{"a", "a"}); is {
		t.Error("two key fields are none")
	}
	equal(t, endOf(500, map[int]string{500: "release"}, false), "release")
	equal(t, endOf(503, map[int]string{503: "seal"}, false), "failed")
}

func TestIDs(t *testing.T) {
	first, second := uuid7(), uuid7()
	if len(first) != 36 || first[14] != '7' || first == second || !isUUID(first) {
		t.Error(first, second)
	}
	if key := uuid4(); key[14] != '4' || !strings.ContainsAny(key[19:20], "89ab") {
		t.Error(key)
	}
	ms, err := strconv.ParseInt(strings.ReplaceAll(first[:13], "-", ""), 16, 64)
	if err != nil || time.Since(time.UnixMilli(ms)) > time.Hour {
		t.Error(first)
	}
}

func TestProfileVectors(t *testing.T) {
	each(t, "sdk/profiles.json", "profiles", func(t *testing.T, one struct {
		Profile, Missing string
		Methods          []string
		TTL              int64 `json:"ttl_ms"`
		Min              int64 `json:"ttl_min_ms"`
		Max              int64 `json:"ttl_max_ms"`
	}) {
		p := profiles[one.Profile]
		equal(t, []any{p.methods, p.missing, p.ttl.Milliseconds(), p.ttlMin.Milliseconds(),
			p.ttlMax.Milliseconds()}, []any{one.Methods, one.Missing, one.TTL, one.Min, one.Max})
	})
	each(t, "sdk/profiles.json", "keys", func(t *testing.T, one struct {
		Profile, Field, Key string
		Error               bool
	}) {
		key, is := profiles[one.Profile].key([]string{one.Field})
		if is == one.Error || is && key != one.Key {
			t.Fatalf("%s: %q: %q, %v", one.Profile, one.Field, key, is)
		}
	})
	each(t, "sdk/profiles.json", "ends", func(t *testing.T, one struct {
		Profile, End string
		Status       int
	}) {
		equal(t, endOf(one.Status, nil, profiles[one.Profile].isSealed5xx), one.End)
	})
	each(t, "sdk/profiles.json", "refusals", func(t *testing.T, one struct {
		Profile, Code string
		OperationID   string `json:"operation_id"`
		RetryAfterMs  int64  `json:"retry_after_ms"`
		Status        int
		Headers       map[string]string
		Body          map[string]any
	}) {
		answer := httptest.NewRecorder()
		e := &exchange{fenced: &fenced{Handlers: Handlers{Profile: one.Profile}}, w: answer,
			id: "r-1", keyField: "k"}
		e.refuse(one.Code, one.OperationID, time.Duration(one.RetryAfterMs)*time.Millisecond)
		got := map[string]any{}
		equal(t, json.Unmarshal(answer.Body.Bytes(), &got), nil)
		if title, is := got["title"]; is {
			equal(t, title != "" && strings.HasPrefix(one.Headers["Content-Type"],
				"application/problem"), true)
			delete(got, "title")
		}
		equal(t, got, one.Body)
		equal(t, answer.Code, one.Status)
		for name := range answer.Header() {
			equal(t, contains([]string{"Content-Length", "Idempotency-Key", "Once-Operation-Id",
				"Request-Id"}, name) || one.Headers[name] == answer.Header().Get(name), true)
		}
		for name, value := range one.Headers {
			equal(t, answer.Header().Get(name), value)
		}
	})
}
