// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestURIs(t *testing.T) {
	cases := map[string]struct {
		kind      Kind
		want, err string
	}{
		"s3://bucket":                   {want: "s3://bucket"},
		"s3://bucket/":                  {want: "s3://bucket"},
		"s3://bucket/a/b/":              {want: "s3://bucket/a/b"},
		"s3://bucket/a%20b+c d":         {want: "s3://bucket/a%20b+c d"},
		"s3://bucket/a@b?c#d":           {want: "s3://bucket/a@b?c#d"},
		"s3://":                         {err: `"" is not a valid bucket name; the URI must be s3://bucket/path`},
		"s3://B_/x":                     {err: `"B_" is not a valid bucket name; the URI must be s3://bucket/path`},
		"hf://owner/name":               {want: "hf://datasets/owner/name@main"},
		"hf://owner/name/":              {want: "hf://datasets/owner/name@main"},
		"hf://models/owner/name@v1.0":   {want: "hf://models/owner/name@v1.0"},
		"hf://datasets/owner/n_a-m.e@x": {want: "hf://datasets/owner/n_a-m.e@x"},
		"hf://datasets/squad":           {want: "hf://datasets/squad@main"},
		"hf://owner/name@refs/pr/1":     {want: "hf://datasets/owner/name@refs/pr/1"},
		"hf://":                         {err: `"" is not valid in the name of a repository; the URI must be hf://owner/name[@revision]`},
		"hf://owner/..":                 {err: `".." is not valid in the name of a repository; the URI must be hf://owner/name[@revision]`},
		"hf://owner/na?me":              {err: `"na?me" is not valid in the name of a repository; the URI must be hf://owner/name[@revision]`},
		"hf://owner/name/train":         {err: `hf://owner/name/train must be hf://owner/name[@revision], hf://datasets/owner/name[@revision] or hf://models/owner/name[@revision]; fetching only a part of a repository is not supported`},
		"hf://owner/name@":              {err: `"" is not a valid revision: it must be a branch, a tag or a commit`},
		"hf://owner/name@a/../b":        {err: `"a/../b" is not a valid revision: it must be a branch, a tag or a commit`},
		"hf://owner/name@a?b":           {err: `"a?b" is not a valid revision: it must be a branch, a tag or a commit`},
		"hf://user:secret@owner/name":   {err: "the URI must not contain credentials; put them into a Secret and name it in secretRef"},
		"s3://key:secret@bucket/name":   {err: "the URI must not contain credentials; put them into a Secret and name it in secretRef"},
		"key:secret@bucket":             {err: "the URI must not contain credentials; put them into a Secret and name it in secretRef"},
		"pvc://claim":                   {want: "pvc://claim"},
		"pvc://claim/a//b/./c/":         {want: "pvc://claim/a/b/c"},
		"pvc://claim/a b@c":             {want: "pvc://claim/a b@c"},
		"pvc:///a":                      {err: "pvc:///a has no PVC name; the URI must be pvc://claim/path"},
		"pvc://../a":                    {err: "pvc://../a has no PVC name; the URI must be pvc://claim/path"},
		"pvc://claim/a/../../b":         {err: "pvc://claim/a/../../b points outside the PVC: the path must not have .. segments"},
		"gs://bucket/x":                 {err: `the URI "gs://bucket/x" must be s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path`},
		"bucket/x":                      {err: `the URI "bucket/x" must be s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path`},
		"s3://bucket/a\nb":              {err: `the URI "s3://bucket/a\nb" has control characters`},
		"":                              {err: `the URI "" must be s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path`},
	}
	for uri, tc := range cases {
		t.Run(uri, func(t *testing.T) {
			got, err := parseURI(uri, Dataset)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got %v\nwant %s", err, tc.err)
				}
			} else if err != nil || got.String() != tc.want {
				t.Errorf("got %s, %v; want %s", got, err, tc.want)
			}
		})
	}
	if got, err := parseURI("hf://owner/name", Model); err != nil || got.String() != "hf://models/owner/name@main" {
		t.Errorf("as a model: %s, %v", got, err)
	}
}

// Any key is either refused, or a file below the directory with a unique name.
func FuzzPathOfKey(f *testing.F) {
	for _, key := range []string{"a", "set/a/b", "set/../x", "set//x", "set/./x", "set/", "/etc/passwd", "set/..", "set/...", "set/a\x00b", "set/a\\..\\b", "set/\xff", "set/ä/ö", "set/" + strings.Repeat("x/", 3000)} {
		f.Add("set/", key)
		f.Add("", key)
	}
	directory := f.TempDir()
	inside := filepath.Join(directory, "inside")
	if err := os.Mkdir(inside, 0o777); err != nil {
		f.Fatal(err)
	}
	root, err := os.OpenRoot(inside)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, prefix, key string) {
		name, err := pathOfKey(prefix, key)
		if err != nil {
			return
		}
		if prefix+name != key {
			t.Errorf("%q below %q became %q: another object may have that path", key, prefix, name)
		}
		if !filepath.IsLocal(name) || path.Clean(name) != name || !utf8.ValidString(name) || strings.Contains(name, "\x00") {
			t.Errorf("%q became %q", key, name)
		}
		// The kernel agrees: the file is below the directory and can be created.
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if err := root.WriteFile(name, nil, 0o666); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if entries, err := os.ReadDir(directory); err != nil || len(entries) != 1 {
			t.Fatalf("%q is outside: %v, %v", name, entries, err)
		}
		first, _, _ := strings.Cut(name, "/")
		if err := root.RemoveAll(first); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	})
}
