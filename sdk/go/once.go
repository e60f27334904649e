// Package once gives exactly-once effects over at-least-once delivery.
//
// It has two halves. Call an API that honours keys: Client, and Transport for an http.Client.
// Fence your own work: Fences, and Handlers for the handlers of net/http. The standard library
// alone.
//
//	fences := once.NewFences("http://127.0.0.1:7411")
//	done, err := fences.Do(ctx, "charge", "order-7", order,
//		func(ctx context.Context) (any, error) { return charge(ctx, order) })
//
// A caller that repeats this, in a hundred goroutines, on other machines or after a crash, gets the
// outcome of the one call that ran.
package once

// Version of this module.
const Version = "0.1.0"
