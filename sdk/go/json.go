package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The server's json_depth_max is the same.
const depthMax = 64

// Parse reads I-JSON (RFC 7493). Numbers become json.Number, so that no digit is lost. What
// encoding/json repairs silently is refused: a duplicate member, invalid UTF-8, a lone surrogate.
func Parse(text []byte) (any, error) {
	r := reader{text: text}
	value, err := r.value(0)
	if err == nil {
		if r.space(); r.at < len(r.text) {
			err = r.fault("text after the value")
		}
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

type reader struct {
	text []byte
	at   int
}

func (r *reader) fault(text string) error {
	return fmt.Errorf("not JSON at byte %d: %s", r.at, text)
}

func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next is the next byte that is not a space; 0: the end of the text.
func (r *reader) next() byte {
	r.space()
	if r.at == len(r.text) {
		return 0
	}
	return r.text[r.at]
}

func (r *reader) value(depth int) (any, error) {
	switch c := r.next(); {
	case c == '{':
		return r.object(depth + 1)
	case c == '[':
		return r.array(depth + 1)
	case c == '"':
		return r.str()
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case c == 0:
		return nil, r.fault("it ends early")
	}
	for word, value := range map[string]any{"true": true, "false": false, "null": nil} {
		if len(r.text)-r.at >= len(word) && string(r.text[r.at:r.at+len(word)]) == word {
			r.at += len(word)
			return value, nil
		}
	}
	return nil, r.fault("a value is missing")
}

func (r *reader) object(depth int) (any, error) {
	if depth > depthMax {
		return nil, r.fault("the value is nested too deeply")
	}
	members := map[string]any{}
	for r.at++; ; r.at++ {
		if r.next() == '}' && len(members) == 0 {
			break
		}
		if r.next() != '"' {
			return nil, r.fault("a name is missing")
		}
		name, err := r.str()
		if err != nil {
			return nil, err
		}
		if _, is := members[name]; is {
			return nil, fmt.Errorf("duplicate member %q", name)
		}
		if r.next() != ':' {
			return nil, r.fault("a colon is missing")
		}
		r.at++
		if members[name], err = r.value(depth); err != nil {
			return nil, err
		}
		if c := r.next(); c == '}' {
			break
		} else if c != ',' {
			return nil, r.fault("a comma or a brace is missing")
		}
	}
	r.at++
	return members, nil
}

func (r *reader) array(depth int) (any, error) {
	if depth > depthMax {
		return nil, r.fault("the value is nested too deeply")
	}
	items := []any{}
	for r.at++; ; r.at++ {
		if r.next() == ']' && len(items) == 0 {
			break
		}
		item, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if c := r.next(); c == ']' {
			break
		} else if c != ',' {
			return nil, r.fault("a comma or a bracket is missing")
		}
	}
	r.at++
	return items, nil
}

func (r *reader) digits() int {
	from := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at - from
}

func (r *reader) is(either string) bool {
	for i := 0; i < len(either); i++ {
		if r.at < len(r.text) && r.text[r.at] == either[i] {
			r.at++
			return true
		}
	}
	return false
}

func (r *reader) number() (any, error) {
	from := r.at
	r.is("-")
	if !r.is("0") && r.digits() == 0 {
		return nil, r.fault("a digit is missing")
	}
	if r.is(".") && r.digits() == 0 {
		return nil, r.fault("a digit is missing")
	}
	if r.is("eE") {
		r.is("+-")
		if r.digits() == 0 {
			return nil, r.fault("a digit is missing")
		}
	}
	return json.Number(r.text[from:r.at]), nil
}

var errEscape = errors.New("an escape in a string is not one")

func (r *reader) str() (string, error) {
	r.at++
	from := r.at
	for r.at < len(r.text) && r.text[r.at] >= 0x20 && r.text[r.at] != '"' && r.text[r.at] != '\\' {
		r.at++
	}
	out := append([]byte(nil), r.text[from:r.at]...)
	for r.at < len(r.text) {
		c := r.text[r.at]
		switch {
		case c == '"':
			r.at++
			if !utf8.Valid(out) {
				return "", r.fault("a string is not UTF-8")
			}
			return string(out), nil
		case c < 0x20:
			return "", r.fault("a string has a raw control character")
		case c != '\\':
			out = append(out, c)
			r.at++
		default:
			unescaped, err := r.escape()
			if err != nil {
				return "", err
			}
			out = append(out, unescaped...)
		}
	}
	return "", r.fault("a string does not end")
}

var escaped = map[byte]string{'"': `"`, '\\': `\`, '/': "/", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t"}

func (r *reader) escape() (string, error) {
	if r.at+1 == len(r.text) {
		return "", r.fault("a string does not end")
	}
	if plain, is := escaped[r.text[r.at+1]]; is {
		r.at += 2
		return plain, nil
	}
	first, err := r.unit()
	if err != nil {
		return "", err
	}
	if first < 0xd800 || first > 0xdfff {
		return string(first), nil
	}
	second, err := r.unit()
	if err != nil || first > 0xdbff || second < 0xdc00 || second > 0xdfff {
		return "", r.fault("a string has a lone surrogate")
	}
	return string(0x10000 + (first-0xd800)<<10 + (second - 0xdc00)), nil
}

// unit reads the four digits of \uXXXX.
func (r *reader) unit() (rune, error) {
	if len(r.text)-r.at < 6 || r.text[r.at] != '\\' || r.text[r.at+1] != 'u' {
		return 0, errEscape
	}
	unit, err := strconv.ParseUint(string(r.text[r.at+2:r.at+6]), 16, 16)
	if err != nil {
		return 0, errEscape
	}
	r.at += 6
	return rune(unit), nil
}
