package once

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// field is what a member of an envelope must be.
type field struct {
	rule       string // name, scalar, object, any, ordinal, intent; ignored: never enters the key
	isRequired bool
}

var ignored = field{rule: "ignored"}

var commandForm = map[string]field{"actor_id": {"name", true}, "args": {"object", false},
	"command_kind": {"name", false}, "intent": {"intent", true}, "tenant_id": {"name", true},
	"effective_actor_id": ignored, "command_id": ignored, "source": ignored, "trace": ignored,
	"created_at": ignored, "confirmation": ignored, "idempotency_key": ignored,
	"extensions": ignored}

var intentForm = map[string]field{"action": {"name", true}, "entity": {"name", true},
	"target": {"any", true}}

var effectForm = map[string]field{"command_id": {"name", true}, "effect_type": {"name", true},
	"ordinal": {"ordinal", false}, "target": {"any", false}, "tenant_id": {"name", true},
	"effect_id": ignored, "idempotency_key": ignored, "payload": ignored, "trace": ignored,
	"attempt": ignored, "created_at": ignored, "policy_refs": ignored, "extensions": ignored}

var sourceForm = map[string]field{"action": {"scalar", false}, "index_hash": {"scalar", false},
	"revision": {"scalar", false}, "source_id": {"scalar", false},
	"source_type": {"scalar", false}, "tenant_id": {"name", true}}

// CommandKey returns the key of a command: of who asks for what, not of how and when it was asked.
// It is that of `once key`, as are EffectKey and SourceKey.
func CommandKey(envelope any) (string, error) {
	hashed, err := collect(commandForm, envelope, "", true)
	if err != nil {
		return "", err
	}
	if hashed["intent"], err = collect(intentForm, hashed["intent"], "/intent", false); err != nil {
		return "", err
	}
	return digest(hashed)
}

// EffectKey returns the key of an effect: of its command, type, target and ordinal.
func EffectKey(envelope any) (string, error) {
	hashed, err := collect(effectForm, envelope, "", true)
	if err != nil {
		return "", err
	}
	return digest(hashed)
}

// SourceKey returns the key of a message by where it came from (KeyFrom).
func SourceKey(envelope any) (string, error) {
	hashed, err := collect(sourceForm, envelope, "", false)
	if err != nil {
		return "", err
	}
	if len(hashed) < 2 {
		return "", errors.New(
			"one of source_type, source_id, revision, index_hash, action is needed")
	}
	return digest(hashed)
}

func digest(value any) (string, error) {
	text, err := Canonical(value)
	if err != nil {
		return "", err
	}
	return sha256Hex(text), nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// collect returns what is hashed of an object, checked.
func collect(form map[string]field, envelope any, prefix string,
	isExtensible bool) (map[string]any, error) {
	plain, err := plainOf(envelope)
	if err != nil {
		return nil, err
	}
	given, is := plain.(map[string]any)
	if !is {
		return nil, fmt.Errorf("%q is not an object", prefix)
	}
	for _, name := range sorted(given) {
		_, isKnown := form[name]
		if !isKnown && !(isExtensible && strings.HasPrefix(name, "x_")) {
			return nil, fmt.Errorf(`unknown member "%s/%s"`, prefix, name)
		}
	}
	hashed := map[string]any{}
	for _, name := range sorted(form) {
		if err := collectOne(form[name], given, prefix, name, hashed); err != nil {
			return nil, err
		}
	}
	return hashed, nil
}

func collectOne(field field, given map[string]any, prefix, name string,
	hashed map[string]any) error {
	if field.rule == "ignored" {
		return nil
	}
	from := name // if one actor acts for another, the effective one counts
	if _, is := given["effective_actor_id"]; is && name == "actor_id" {
		from = "effective_actor_id"
	}
	value, is := given[from]
	switch {
	case !is && field.isRequired:
		return fmt.Errorf(`member "%s/%s" is missing`, prefix, from)
	case !is && field.rule == "object":
		value = map[string]any{}
	case !is && field.rule == "ordinal":
		value = 0
	case !is:
		return nil
	}
	if wanted := broken(field.rule, value); wanted != "" {
		return fmt.Errorf(`member "%s/%s" must be %s`, prefix, from, wanted)
	}
	hashed[name] = value
	return nil
}

// plainOf turns a value into maps, slices, strings and json.Numbers.
func plainOf(value any) (any, error) {
	switch value.(type) {
	case map[string]any, []any:
		return value, nil
	}
	text, err := Canonical(value)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

func sorted[T any](members map[string]T) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// broken returns what a value should have been; "" if it is right.
func broken(rule string, value any) string {
	text, isText := value.(string)
	isName := isText && text != ""
	switch rule {
	case "name":
		if !isName {
			return "a string that is not empty"
		}
	case "scalar":
		if !isName && !isNumber(value) {
			return "a string that is not empty, or a number"
		}
	case "object", "intent":
		if plain, err := plainOf(value); err != nil || !isObject(plain) {
			return "an object"
		}
	case "ordinal":
		if !isOrdinal(value) {
			return "an integer from 0 on"
		}
	}
	return ""
}

func isObject(value any) bool {
	_, is := value.(map[string]any)
	return is
}

func isNumber(value any) bool {
	text, err := Canonical(value)
	return err != nil || text[0] == '-' || text[0] >= '0' && text[0] <= '9'
}

// isOrdinal leaves a number that is lossy to Canonical, which names it.
func isOrdinal(value any) bool {
	text, err := Canonical(value)
	if err != nil {
		return true
	}
	double, err := strconv.ParseFloat(string(text), 64)
	return err == nil && double >= 0 && !strings.ContainsAny(string(text), ".-")
}
