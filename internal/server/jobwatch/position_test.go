// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"testing"
)

func TestPositions(t *testing.T) {
	for text, want := range map[string]position{
		"1":                    at(1),
		"18446744073709551615": at(18446744073709551615),
		"7-9-1":                {from: 7, version: 9, count: 1},
		"7-900-12":             {from: 7, version: 900, count: 12},
	} {
		t.Run(text, func(t *testing.T) {
			if read, err := parsePosition(text); err != nil || read != want || read.String() != text {
				t.Errorf("%+v %v", read, err)
			}
			if err := (&Watch{Since: text}).Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, text := range []string{"0", "-1", "+1", "01", "1.5", "x", " 1", "1 ", "18446744073709551616", "1-2", "7-9-0", "9-7-1", "7-7-1", "7-9--1", "7-9-01", "7-9-1-1", "--", "1\n"} {
		t.Run("not "+text, func(t *testing.T) {
			if read, err := parsePosition(text); codeOf(err) != 400 {
				t.Errorf("%+v %v", read, err)
			}
			if err := (&Watch{Since: text}).Validate(); codeOf(err) != 400 {
				t.Error(err)
			}
		})
	}
}

// FuzzPosition: any text is either a position in its only form, or an error of the client;
// and no store fails on it.
func FuzzPosition(f *testing.F) {
	for _, text := range []string{"1", "100", "105", "7-9-1", "100-110-1", "0", "x", ""} {
		f.Add(text)
	}
	store := storeWithGap(f)
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parsePosition(text)
		if err != nil {
			if codeOf(err) != 400 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if read.String() != text {
			t.Errorf("%q is read as %q", text, read)
		}
		next, where := store.resume(read)
		if where == known && (next < store.first || next > store.next()) {
			t.Errorf("%q goes on at %d, and there is %d to %d", text, next, store.first, store.next())
		}
	})
}
