package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	exponentFrom  = 21 // ECMAScript writes 1e+21, and every digit below that
	exponentBelow = -6 // and 1e-7, but 0.000001
)

var errUTF8 = errors.New("a string is not UTF-8")

// Canonical returns the canonical form (RFC 8785) of a value: the bytes of `once canon --strict`.
// Maps, slices and plain values are taken as they are, everything else as encoding/json writes it.
// Equal values have equal keys on every platform, so what would be lost is refused: a number that
// a double cannot hold, a string that is not UTF-8.
func Canonical(value any) ([]byte, error) {
	var out []byte
	if err := put(&out, value, "", 0); err != nil {
		return nil, err
	}
	return out, nil
}

func put(out *[]byte, value any, pointer string, depth int) error {
	if depth > depthMax {
		return errors.New("the value is nested too deeply")
	}
	switch value := value.(type) {
	case nil:
		*out = append(*out, "null"...)
	case bool:
		*out = strconv.AppendBool(*out, value)
	case string:
		return putString(out, value)
	case json.Number:
		return putNumber(out, string(value), pointer)
	case float64:
		return putDouble(out, value, pointer)
	case int:
		return putNumber(out, strconv.Itoa(value), pointer)
	case map[string]any:
		return putObject(out, value, pointer, depth+1)
	case []any:
		return putArray(out, value, pointer, depth+1)
	default:
		return putOther(out, value, pointer, depth)
	}
	return nil
}

// putOther puts what encoding/json can write, and refuses what it would repair silently.
func putOther(out *[]byte, value any, pointer string, depth int) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%q has no JSON: %w", pointer, err)
	}
	if !isUTF8(reflect.ValueOf(value)) {
		return errUTF8
	}
	plain, err := Parse(text)
	if err != nil {
		return err
	}
	return put(out, plain, pointer, depth)
}

// isUTF8 is asked after json.Marshal, which has refused a value that holds itself.
func isUTF8(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.String:
		return utf8.ValidString(value.String())
	case reflect.Pointer, reflect.Interface:
		return value.IsNil() || isUTF8(value.Elem())
	case reflect.Slice, reflect.Array:
		for i := 0; value.Type().Elem().Kind() != reflect.Uint8 && i < value.Len(); i++ {
			if !isUTF8(value.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for each := value.MapRange(); each.Next(); {
			if !isUTF8(each.Key()) || !isUTF8(each.Value()) {
				return false
			}
		}
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() && !isUTF8(value.Field(i)) {
				return false
			}
		}
	}
	return true
}

func putObject(out *[]byte, members map[string]any, pointer string, depth int) error {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return isBefore(names[i], names[j]) })
	*out = append(*out, '{')
	for i, name := range names {
		if i > 0 {
			*out = append(*out, ',')
		}
		if err := putString(out, name); err != nil {
			return err
		}
		*out = append(*out, ':')
		step := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
		if err := put(out, members[name], pointer+"/"+step, depth); err != nil {
			return err
		}
	}
	*out = append(*out, '}')
	return nil
}

// isBefore orders names by their UTF-16 code units.
func isBefore(a, b string) bool {
	left, right := utf16.Encode([]rune(a)), utf16.Encode([]rune(b))
	for i := 0; i < len(left) && i < len(right); i++ {
		if left[i] != right[i] {
			return left[i] < right[i]
		}
	}
	return len(left) < len(right)
}

func putArray(out *[]byte, items []any, pointer string, depth int) error {
	*out = append(*out, '[')
	for i, item := range items {
		if i > 0 {
			*out = append(*out, ',')
		}
		if err := put(out, item, pointer+"/"+strconv.Itoa(i), depth); err != nil {
			return err
		}
	}
	*out = append(*out, ']')
	return nil
}

var escapes = map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`,
	'\r': `\r`, '\t': `\t`}

func putString(out *[]byte, text string) error {
	if !utf8.ValidString(text) {
		return errUTF8
	}
	*out = append(*out, '"')
	for i := 0; i < len(text); i++ {
		c := text[i]
		if escape, is := escapes[c]; is {
			*out = append(*out, escape...)
		} else if c < 0x20 {
			*out = append(*out, fmt.Sprintf(`\u%04x`, c)...)
		} else {
			*out = append(*out, c)
		}
	}
	*out = append(*out, '"')
	return nil
}

func putNumber(out *[]byte, text, pointer string) error {
	double, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("number %s at %q is beyond the largest double", text, pointer)
	}
	if !isSameDecimal(text, es(double)) {
		return fmt.Errorf("number %s at %q is lossy: a double does not hold it", text, pointer)
	}
	return putDouble(out, double, pointer)
}

func putDouble(out *[]byte, double float64, pointer string) error {
	if math.IsInf(double, 0) || math.IsNaN(double) {
		return fmt.Errorf("number %v at %q is beyond the largest double", double, pointer)
	}
	*out = append(*out, es(double)...)
	return nil
}

// es writes a double as ECMAScript does.
func es(double float64) string {
	if double == 0 {
		return "0"
	}
	if double < 0 {
		return "-" + es(-double)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(double, 'e', -1, 64), "e")
	digits := strings.Replace(mantissa, ".", "", 1)
	point, _ := strconv.Atoi(exponent)
	point++ // digits before the decimal point
	switch {
	case point > exponentBelow && point <= 0:
		return "0." + strings.Repeat("0", -point) + digits
	case point > 0 && point <= exponentFrom && point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits))
	case point > 0 && point <= exponentFrom:
		return digits[:point] + "." + digits[point:]
	}
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return fmt.Sprintf("%se%+d", digits, point-1)
}

// isSameDecimal says whether two numbers are one value, digit by digit.
func isSameDecimal(a, b string) bool {
	left, leftScale, leftIsFit := decimal(a)
	right, rightScale, rightIsFit := decimal(b)
	return leftIsFit && rightIsFit && left == right && (leftScale == rightScale || left == "")
}

// decimal splits a number into its digits, without zeros around them and with its sign, and the
// power of ten of the last one.
func decimal(text string) (digits string, scale int, isFit bool) {
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "", 0, true
	}
	scale = len(digits) - len(trimmed) - len(fraction)
	if hasExponent {
		power, err := strconv.Atoi(exponent)
		if err != nil {
			return "", 0, false
		}
		scale += power
	}
	return sign + trimmed, scale, true
}
