package once

import (
	"math/bits"
	"net/http"
	"strconv"
	"time"
)

// What one attempt means for the whole operation, and how long to pause before the next. Pure.
// Three answers exist (yes, no, unknown), and unknown is never folded into the others: an attempt
// that was sent and not answered may have happened, and only an answer that speaks for the
// operation itself takes that back. The cases are in tests/vectors/sdk.

// Effect says whether the operation took effect, as far as that can be known.
type Effect string

// The three answers.
const (
	EffectYes     Effect = "yes"
	EffectNo      Effect = "no"
	EffectUnknown Effect = "unknown"
)

const (
	afterSecondsMax   = 365 * 86400 // longer values of Retry-After are cut to this
	dateCharactersMax = 63          // the longest of the three forms has 33
	doubledMax        = 40          // by then every ceiling is at its maximum
)

// How an attempt ended.
const (
	endAnswered   = "answered"
	endNotSent    = "not_sent"
	endHopeless   = "hopeless" // not sent, and no better next time
	endLost       = "lost"
	endUnreadable = "unreadable"
)

func isRead(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
}

type facts struct {
	end        string
	isRead     bool
	status     int    // 0: no answer
	isReplayed bool   // Idempotent-Replayed: true
	decision   string // Once-Decision
	document   any    // of a refusal, if it is JSON
}

type verdict struct {
	retry   bool // a further attempt is safe and may end differently
	settles bool // it speaks for the operation, whatever came of earlier attempts
	effect  Effect
}

// judge says what an attempt to call an API means.
func judge(f facts) verdict {
	switch {
	case f.end == endAnswered:
		return judgeAnswer(f)
	case f.end == endNotSent || f.end == endHopeless || f.isRead:
		return verdict{f.end == endNotSent || f.end == endLost, false, EffectNo}
	}
	return verdict{f.end == endLost, false, EffectUnknown}
}

// judgeOnce says what a request to Once itself means: repeating one is always safe, and its answers
// about an operation are answers.
func judgeOnce(f facts) verdict {
	if f.end != endAnswered {
		return judge(f)
	}
	return verdict{f.status == 408 || f.status == 429 || f.status >= 500, true, EffectNo}
}

// judgeBriefly is for a caller whose own client waits: a flood of duplicates is an answer.
func judgeBriefly(f facts) verdict {
	verdict := judgeOnce(f)
	verdict.retry = verdict.retry && f.status != 429
	return verdict
}

func judgeAnswer(f facts) verdict {
	document := readRefusal(f.document)
	isOpen := document.isInProgress(f) || document.isHeld(f)
	isReplayed := f.isReplayed || f.decision == "duplicate_replayed"
	settles := isReplayed || f.decision == "first_seen"
	effect := effectOf(f, document, isOpen)
	if f.decision == "conflict_rejected" {
		return verdict{false, settles, effect}
	}
	if isOpen {
		return verdict{true, false, effect} // it may be settled by the time of the retry
	}
	isKnown := document.effect == EffectYes || document.effect == EffectNo
	isFinal := isReplayed || document.retry == "no" && isKnown
	mayPass := f.status >= 500 || f.status == 408 || f.status == 429
	if mayPass && !isReplayed {
		settles = false // "not now" is not an outcome
	}
	return verdict{mayPass && !isFinal, settles, effect}
}

func effectOf(f facts, document refusal, isOpen bool) Effect {
	switch {
	case f.isRead:
		return EffectNo
	case f.status >= 200 && f.status < 300:
		return EffectYes
	case isOpen:
		return EffectUnknown
	case document.effect != "":
		return document.effect
	case f.status == 303:
		return EffectYes // RFC 9110 section 15.4.4: done, and the result is elsewhere
	case f.status >= 400 && f.status < 500 && f.status != 408, f.status == 307, f.status == 308:
		return EffectNo
	}
	return EffectUnknown
}

// refusal is what the body of a refusal says, in any profile of the gateway.
type refusal struct {
	code, error, reason, retry string
	effect                     Effect
}

func readRefusal(document any) refusal {
	members, _ := document.(map[string]any)
	r := refusal{code: textOf(members, "code"), error: textOf(members, "error")}
	if errors, _ := members["errors"].([]any); len(errors) > 0 {
		first, _ := errors[0].(map[string]any)
		r.reason = textOf(first, "reason")
	}
	if r.code != "" {
		r.retry = textOf(members, "retry")
		switch effect := Effect(textOf(members, "effect")); effect {
		case EffectYes, EffectNo, EffectUnknown:
			r.effect = effect
		}
	}
	return r
}

func textOf(members map[string]any, name string) string {
	text, _ := members[name].(string)
	return text
}

func (r refusal) isInProgress(f facts) bool {
	return f.status == 409 && (f.decision == "in_progress" || r.code == "in_progress" ||
		r.error == "idempotency_in_progress" || r.reason == "IDEMPOTENT_REQUEST_IN_PROGRESS")
}

func (r refusal) isHeld(f facts) bool {
	return f.status >= 400 && (f.decision == "held_unknown" || r.code == "outcome_unknown")
}

type pause struct {
	baseMs, maxMs, afterMs, leftMs int64
	retry                          uint64 // 0: the first
	random                         uint64
}

// waitMs returns the milliseconds to pause, fewer than are left; -1 when the next attempt would
// come too late. Full jitter: between nothing and a ceiling that doubles. Retry-After is a lower
// bound.
func waitMs(p pause) int64 {
	spare := p.leftMs - p.afterMs
	if spare <= 0 {
		return -1
	}
	shift := p.retry
	if shift > doubledMax {
		shift = doubledMax
	}
	ceiling := p.maxMs
	if high, low := bits.Mul64(uint64(p.baseMs), 1<<shift); high == 0 && low < uint64(ceiling) {
		ceiling = int64(low)
	}
	jitter := int64(p.random % uint64(ceiling+1))
	if jitter >= spare {
		jitter = spare / 2 // the other half is for the attempt
	}
	return p.afterMs + jitter
}

// retryAfterMs returns the milliseconds of a Retry-After (RFC 9110 section 10.2.3); 0 if there are
// none.
func retryAfterMs(text string, nowMs int64) int64 {
	if text == "" || len(text) > dateCharactersMax {
		return 0
	}
	ms := int64(0)
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		if seconds > afterSecondsMax {
			seconds = afterSecondsMax
		}
		ms = int64(seconds) * 1000
	} else if date, err := http.ParseTime(text); err == nil {
		ms = date.UnixMilli() - nowMs
	}
	if ms < 0 {
		return 0
	}
	if ms > afterSecondsMax*1000 {
		return afterSecondsMax * 1000
	}
	return ms
}

func retryAfter(header http.Header) time.Duration {
	ms := retryAfterMs(header.Get("Retry-After"), time.Now().UnixMilli())
	return time.Duration(ms) * time.Millisecond
}
