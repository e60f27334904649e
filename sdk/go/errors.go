package once

import (
	"fmt"
	"time"
)

// What can go wrong, by what the caller should do about it. errors.As finds each of these.

// CallError is a call that ended without an answer.
type CallError struct {
	Text           string
	IdempotencyKey string
	RequestID      string // of the last attempt
	Attempts       int
	Effect         Effect
	Cause          error
}

func (e *CallError) Error() string { return e.Text }

// Unwrap gives the cause: context.Canceled, an error of net, …
func (e *CallError) Unwrap() error { return e.Cause }

// Unavailable: no attempt reached the server, and nothing happened.
type Unavailable struct{ CallError }

// Unwrap gives the CallError.
func (e *Unavailable) Unwrap() error { return &e.CallError }

// NoAnswer: there is no answer, and it may have happened. The same key continues the operation.
type NoAnswer struct{ CallError }

// Unwrap gives the CallError.
func (e *NoAnswer) Unwrap() error { return &e.CallError }

// Problem is a refusal of Once.
type Problem struct {
	Status      int
	Code        string // stable
	Effect      Effect // whether anything happened
	Detail      string
	OperationID string
	RetryAfter  time.Duration // 0: it does not say
	Document    map[string]any
}

func (e *Problem) Error() string {
	for _, text := range []string{e.Detail, e.Code} {
		if text != "" {
			return text
		}
	}
	return fmt.Sprintf("Once answered %d", e.Status)
}

// Conflict: the key was used with a different payload. Document["diff"] shows the difference.
type Conflict struct{ Problem }

// Unwrap gives the Problem.
func (e *Conflict) Unwrap() error { return &e.Problem }

// InProgress: somebody else holds the grant. Ask again after RetryAfter, with the same key.
type InProgress struct{ Problem }

// Unwrap gives the Problem.
func (e *InProgress) Unwrap() error { return &e.Problem }

// OutcomeUnknown: it may have happened, and nobody knows. Check, then settle it with
// Fences.Resolve; do not repeat it.
type OutcomeUnknown struct{ Problem }

// Unwrap gives the Problem.
func (e *OutcomeUnknown) Unwrap() error { return &e.Problem }

// StaleFence: somebody took over, or settled it. This changed nothing.
type StaleFence struct{ Problem }

// Unwrap gives the Problem.
func (e *StaleFence) Unwrap() error { return &e.Problem }

// AlreadySealed: it was settled differently before. This changed nothing.
type AlreadySealed struct{ Problem }

// Unwrap gives the Problem.
func (e *AlreadySealed) Unwrap() error { return &e.Problem }

func problemOf(p Problem) error {
	switch p.Code {
	case "idempotency_conflict":
		return &Conflict{p}
	case "outcome_unknown":
		return &OutcomeUnknown{p}
	case "stale_fence":
		return &StaleFence{p}
	case "already_sealed":
		return &AlreadySealed{p}
	}
	return &p
}

// NotSealed: the work was done, and Once could not record it. The operation becomes unknown.
type NotSealed struct {
	Outcome     []byte // JSON
	OperationID string
	Cause       error
}

func (e *NotSealed) Error() string {
	return fmt.Sprintf("the outcome of %s could not be recorded: %v", e.OperationID, e.Cause)
}

// Unwrap gives the cause.
func (e *NotSealed) Unwrap() error { return e.Cause }

// NotStarted is returned by fenced work: the effect certainly did not start. The key is free again.
type NotStarted struct{ Reason string }

func (e *NotStarted) Error() string {
	if e.Reason == "" {
		return "it did not start"
	}
	return e.Reason
}

// Failed is returned by fenced work: it is known to have failed for good. Every duplicate gets it.
type Failed struct{ Outcome any }

func (e *Failed) Error() string { return "the work failed, finally" }
