// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Published checksums of "123456789", and git's hash of that file.
func TestChecksums(t *testing.T) {
	const text = "123456789"
	cases := map[algorithm]string{
		crc32IEEE: "cbf43926",
		crc32C:    "e3069283",
		crc64NVME: "ae8b14860a799888",
		md5Sum:    "25f9e794323b453885f5181f1b624d0b",
		sha1Sum:   "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
		sha256Sum: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
		gitBlob:   "e2e107ac61ac259b87c544f6e7a4eb03422c6c21",
	}
	for algorithm, sum := range cases {
		t.Run(algorithm.String(), func(t *testing.T) {
			want := checksum{algorithm: algorithm, sum: sum}
			hash := want.newHash(int64(len(text)))
			hash.Write([]byte(text))
			if !want.matches(hash) {
				t.Errorf("got %x", hash.Sum(nil))
			}
			hash.Write([]byte{0})
			if want.matches(hash) {
				t.Error("it fits anything")
			}
		})
	}
	if (checksum{}).newHash(0) != nil || !(checksum{}).matches(nil) {
		t.Error("no checksum asks for something")
	}
}

func TestCredentialsAreMasked(t *testing.T) {
	environment := map[string]string{
		accessKeyVariable: "AKIATESTTEST", secretKeyVariable: "se/cr+et= of\n", "HF_TOKEN": "hf_token", "HUGGING_FACE_HUB_TOKEN": "hf_token_longer",
		sessionTokenVariable: "abc", "HTTPS_PROXY": "http://me:proxypass@proxy:3128",
	}
	redactor := newRedactor(func(name string) string { return environment[name] })
	cases := map[string]string{
		"AKIATESTTEST and se/cr+et= of":         "*** and ***",
		"escaped se%2Fcr%2Bet%3D+of":            "escaped ***",
		"hf_token_longer":                       "***",
		"hf_tokens":                             "***s",
		"abc is too short to be one":            "abc is too short to be one",
		"via http://me:proxypass@proxy:3128":    "via http://proxy:3128",
		"password proxypass":                    "password ***",
		"https://s/a?X-Amz-Signature=x&b=c end": "https://s/a end",
		`Get "https://s/a?sig=x": EOF`:          `Get "https://s/a": EOF`,
		"s3://me:pw@bucket/a":                   "s3://bucket/a",
		"hf://owner/name@v1":                    "hf://owner/name@v1",
		"s3://bucket/a?b":                       "s3://bucket/a?b",
	}
	for text, want := range cases {
		if got := redactor.text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestMessagesAreOneShortLine(t *testing.T) {
	long := oneLine("a\nb\tc\x00d" + strings.Repeat("ä", 3000))
	if !strings.HasPrefix(long, "a b c d") || len(long) > maxMessage+len("…") || !strings.HasSuffix(long, "ä…") {
		t.Errorf("%d bytes: %.20q", len(long), long)
	}
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1 << 62: "4.0 EiB"} {
		if got := size(bytes); got != want {
			t.Errorf("%d is %s, want %s", bytes, got, want)
		}
	}
}

// Storage publishes MD5 and SHA-1 sums, also to programs in FIPS mode.
func TestChecksumsInFIPSMode(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("the tests themselves run in FIPS mode")
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChecksums$", "-test.v")
	again.Env = append(os.Environ(), "GODEBUG=fips140=only")
	output, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestChecksums/MD5") {
		t.Errorf("in FIPS mode: %v\n%s", err, output)
	}
}
