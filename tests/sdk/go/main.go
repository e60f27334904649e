// The test programs of the Go SDK, in one binary:
//
//	drive                       one call, as drivers.py describes: JSON on standard input and output
//	app net/http ONCE_URL PROFILE     the application of applications.py; prints its port
//	gateway URL operations goroutines prefix deadline_ms answers       load.py
//	fences ONCE_URL PROVIDER_URL operations goroutines answers         load.py
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"once.example/once"
)

var background = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	programs := map[string]func([]string){"drive": drive, "app": serve, "gateway": loadGateway,
		"fences": loadFences}
	programs[os.Args[1]](os.Args[2:])
}

func drive([]string) {
	var call struct {
		Method, URL string
		Retries     int
		Key         *string `json:"idempotency_key"`
		RequestID   *string `json:"request_id"`
		Headers     map[string]string
		Body        *string
	}
	must(json.NewDecoder(os.Stdin).Decode(&call))
	options := []once.SendOption{once.Retries(call.Retries)}
	if call.Key != nil {
		options = append(options, once.IdempotencyKey(*call.Key))
	}
	if call.RequestID != nil {
		options = append(options, once.RequestID(*call.RequestID))
	}
	for name, value := range call.Headers {
		options = append(options, once.Header(name, value))
	}
	var body any
	if call.Body != nil {
		body = *call.Body
	}
	answer, err := (&once.Client{}).Send(background, call.Method, call.URL, body, options...)
	done := map[string]any{"result": "ok", "status": 0, "replayed": false}
	var failed *once.CallError
	var unavailable *once.Unavailable
	switch {
	case err == nil:
		done["status"], done["effect"] = answer.Status, answer.Effect
		done["replayed"], done["attempts"] = answer.IsReplayed(), answer.Attempts
	case errors.As(err, &failed):
		done["result"] = "unknown"
		if errors.As(err, &unavailable) {
			done["result"] = "unavailable"
		}
		done["effect"], done["attempts"] = failed.Effect, failed.Attempts
	default:
		must(err)
	}
	must(json.NewEncoder(os.Stdout).Encode(done))
}
