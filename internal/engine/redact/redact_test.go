// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	random40 = "wJalrXUtnFEMI0K7MDENG/bPxRfiCYzEXAMPLEKE"
	random36 = "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW2xY4"
	jwt      = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50In0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg-_x"
)

// known are lines with a secret in «quotes», one for each rule.
var known = map[string]string{
	"JWT":                           "got «" + jwt + "» from the login",
	"token of a service account":    "curl -H 'Authorization: Bearer «" + jwt + "»' https://kubernetes.default.svc",
	"JWT behind an escape":          `{"log":"line\n«` + jwt + `»\n"}`,
	"login of a registry":           ".dockerconfigjson: «eyJhdXRocyI6eyJyZWdpc3RyeSI6eyJhdXRoIjoiZFhObGNqcHdZWE56In19fQ==»",
	"key in a Secret":               "tls.key: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVBdGVzdA==»",
	"bearer token":                  "sent bearer «9f86d081884c7d659a2feaa0c55ad015» to the server",
	"bearer in capitals":            "BEARER «9f86d081-884c7d65.9a2f~eaa0+c55a/d015==» refused",
	"Authorization, bearer":         "> Authorization: Bearer «abc123»",
	"Authorization, basic":          "> authorization: Basic «dXNlcjpwYXNzd29yZA==»",
	"Authorization, in JSON":        `{"headers": {"Authorization": "Basic «dXNlcjpwYXNzd29yZA==»", "Accept": "*/*"}}`,
	"Authorization, in Python":      "{'Authorization': 'token «0123456789abcdef»'} sent",
	"Proxy-Authorization":           "Proxy-Authorization: Basic «dXNlcjpwYXNzd29yZA==»",
	"password in a URL":             "connect to postgres://train:«hunter2»@db.example.com:5432/runs?sslmode=off",
	"password without a name":       "redis://:«s3cr3t»@cache:6379/0",
	"password with a slash":         "amqp://user:«pa/ss#wo»@queue/vhost",
	"password with an @":            "ftp://user:«p@ss»@host/file",
	"password and a branch":         "pip install git+https://me:«hunter2»@example.com/team/code.git@v1.2",
	"token as a URL's user":         "https://«0123456789abcdef0123456789abcdef»@example.com/team/code.git",
	"AWS access key":                "using key «AKIAIOSFODNN7EXAMPLE» of the bucket",
	"AWS temporary key":             "ASIA: («ASIAIOSFODNN7EXAMPLE»)",
	"AWS keys side by side":         "credentials «AKIAIOSFODNN7EXAMPLE:" + random40 + "» read",
	"AWS secret key":                "AWS_SECRET_ACCESS_KEY=«" + random40 + "» python train.py",
	"AWS secret key in a file":      "aws_secret_access_key = «" + random40 + "»",
	"AWS session token":             "AWS_SESSION_TOKEN=«IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJ»",
	"AWS signed address":            "GET https://bucket/x?X-Amz-Date=20260101&X-Amz-Signature=«fe5f80f77d5fa3beca038a248ff027d0445342fe»&X-Amz-Expires=60",
	"Google key":                    "maps key «AIzaSyA-1234567890abcdefghijklmnopqrstu» used",
	"Google token":                  "ya29: «ya29.a0AfH6SMBx1234567890abcdefghij-_»",
	"Google service account":        `"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----«\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSj==\n»-----END PRIVATE KEY-----\n", "client_email": "a@b"`,
	"Azure account key":             "DefaultEndpointsProtocol=https;AccountName=train;AccountKey=«Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4+/==»;EndpointSuffix=core.windows.net",
	"Azure shared access key":       "Endpoint=sb://bus/;SharedAccessKeyName=root;SharedAccessKey=«Zm9vYmFyYmF6cXV4Zm9v+/=»;EntityPath=jobs",
	"Azure signature":               "https://train.blob.core.windows.net/data?sv=2022-11-02&sig=«aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0%2BvW%3D»&se=2026",
	"Azure SAS":                     "SharedAccessSignature=sr=example&sig=«aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0»&se=1",
	"GitHub token":                  "remote: «ghp_" + random36 + "» refused",
	"GitHub app token":              "x«ghs_" + random36 + "» refused",
	"GitHub fine-grained token":     "(«github_pat_11ABCDEFG0" + random36 + "_abc»)",
	"GitLab token":                  "cloning with «glpat-aB3dE5fG7hI9jK1lM2nO», then",
	"Hugging Face token":            "login with «hf_abcdefghijklmnopqrstuvwxyzABCDEFGH» worked",
	"Hugging Face, coloured":        "\x1b[31m«hf_abcdefghijklmnopqrstuvwxyzABCDEFGH»\x1b[0m",
	"OpenAI key":                    "OpenAI: «sk-proj-aB3dE5fG7hI9jK1lM2nO4pQ6» is wrong",
	"other sk- key":                 `{"key":"«sk-ant-api03-aB3dE5fG7hI9jK1lM2nO4pQ6rS»"}`,
	"NVIDIA key":                    "NGC «nvapi-aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW2xY4aB3dE5fG7hI9» ok",
	"Slack token":                   "slack «xoxb-1234567890-abcdefGHIJKL» sends",
	"npm token":                     "//registry/:_authToken=«npm_" + random36 + "»",
	"npm token alone":               "use «npm_" + random36 + "» to publish",
	"PyPI token":                    "twine upload with «pypi-AgEIcHlwaS5vcmcCJGFiY2RlZjEyMzQ1Njc4OTBhYmNkZWYxMjM0NTY3ODkw» now",
	"age key":                       "«AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S» made",
	"password=":                     "login user=me password=«hunter2» host=db",
	"password: in YAML":             "  password: «hunter2»",
	"password in brackets":          "Login(user='me', passwd='«correct horse battery»', tries=3)",
	"password in JSON":              `{"user": "me", "password": "«cor\"rect»", "tries": 3}`,
	"password in JSON in JSON":      `{"body":"{\"db_password\":\"«hunter two»\",\"x\":1}"}`,
	"password with a comma":         "password=«a,b;c» user=me",
	"password in a list":            "user=me,password=«hunter2»,host=db",
	"passphrase":                    "KEY_PASSPHRASE=«open-sesame»",
	"pwd":                           "jdbc:sqlserver://h;user=sa;pwd=«hunter2»;encrypt=true",
	"numbered password":             "PASSWORD_1=«hunter2» x",
	"secret":                        "clientSecret: «abc»,",
	"API key":                       "WANDB_API_KEY=«0123456789abcdef0123456789abcdef01234567» python x.py",
	"API key in a header":           "< X-Api-Key: «hunter2»",
	"API key in code":               "openai.api_key = \"«hunter2»\"",
	"access key":                    "S3_ACCESS_KEY='«minio»'",
	"token=":                        "GET /data?token=«a1b2c3d4»&page=2",
	"HF_TOKEN":                      "os.environ['HF_TOKEN'] = '«a1b2c3d4»'",
	"refresh_token":                 `"refresh_token" : "«abc»"`,
	"flag":                          "mysql --user me --password «hunter2» --host db",
	"flag with =":                   "mysql --password=«hunter2» --host db",
	"cookie":                        "Set-Cookie: «session=0123456789abcdef»; Path=/",
	"key on one line":               "-----BEGIN RSA PRIVATE KEY-----« MIIEow IBAAKCAQ»-----END RSA PRIVATE KEY----- was read",
	"line of a key, begin not read": "«MIIEowIBAAKCAQEAt3Gx9kQwZ1yV5nBvXcL8mPpTqRsUuWwYyZzAaBbCcDdEeFf0»",
}

// secretsIn are the secrets of a line, and the redacted line.
func secretsIn(marked string) (line, shown string, secrets []string) {
	for {
		before, rest, found := strings.Cut(marked, "«")
		line, shown = line+before, shown+before
		if !found {
			return line, shown, secrets
		}
		secret, after, _ := strings.Cut(rest, "»")
		line, shown, secrets = line+secret, shown+Mark, append(secrets, secret)
		marked = after
	}
}

func TestSecretsAreRedacted(t *testing.T) {
	for name, marked := range known {
		t.Run(name, func(t *testing.T) {
			line, want, _ := secretsIn(marked)
			if got := New().Line("pod", line, false); got != want {
				t.Errorf("%s\nis shown as %s\nwant        %s", line, got, want)
			}
			if again := New().Line("pod", want, false); again != want {
				t.Errorf("redacting the output again changes it: %s", again)
			}
		})
	}
}

// inPieces is the output for a line that comes in parts.
func inPieces(filter *Filter, source string, pieces ...string) string {
	var shown strings.Builder
	for i, piece := range pieces {
		shown.WriteString(filter.Line(source, piece, i < len(pieces)-1))
	}
	return shown.String()
}

// The output is the same wherever a line is split, even into single bytes.
func TestSplitLines(t *testing.T) {
	for name, marked := range known {
		t.Run(name, func(t *testing.T) {
			line, want, _ := secretsIn(marked)
			for cut := range len(line) + 1 {
				if got := inPieces(New(), "pod", line[:cut], line[cut:]); got != want {
					t.Fatalf("cut after %q, it is shown as %s", line[:cut], got)
				}
			}
			if got := inPieces(New(), "pod", strings.Split(line, "")...); got != want {
				t.Errorf("byte by byte, it is shown as %s", got)
			}
		})
	}
}

// The same for lines that are longer than the window: a split near the secret never
// shows it.
func TestSplitLongLines(t *testing.T) {
	for name, marked := range known {
		if name == "line of a key, begin not read" {
			continue // The secret is the rest of the line.
		}
		t.Run(name, func(t *testing.T) {
			line, want, _ := secretsIn(marked)
			before, after := strings.Repeat("loss 0.1 ", window/4), strings.Repeat(" step 7 ok", window/4)
			for cut := 0; cut <= len(line); cut += 3 {
				for _, gap := range []int{0, 1, window - len(line)/2, window, window + 1} {
					got := inPieces(New(), "pod", before+line[:cut], line[cut:]+after[:gap], after[gap:])
					if got != before+want+after {
						t.Fatalf("cut after %q and %d bytes later, it is shown as %s", line[:cut], gap, got[len(before)-10:min(len(got), len(before)+len(want)+20)])
					}
				}
			}
		})
	}
}

// A secret that is longer than the window is redacted wherever it is split.
func TestLongSecrets(t *testing.T) {
	long := strings.Repeat("aB3/", 5*window)
	for name, test := range map[string]struct{ line, want string }{
		"token":         {"x eyJ" + long + " y", "x [redacted] y"},
		"word":          {"x password=" + long + " y", "x password=[redacted] y"},
		"quote":         {`x password="` + long + `\"` + long + `" y`, `x password="[redacted]" y`},
		"apostrophe":    {`x password='` + long + `\'` + long + `' y`, `x password='[redacted]' y`},
		"key":           {"x -----BEGIN PRIVATE KEY-----" + long + "-----END PRIVATE KEY----- y", "x -----BEGIN PRIVATE KEY-----[redacted]-----END PRIVATE KEY----- y"},
		"quote, no end": {`x password="` + long, `x password="[redacted]`},
		"bearer":        {"x Bearer " + long, "x Bearer [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				var pieces []string
				for rest := test.line; rest != ""; {
					size := min(len(rest), 1+dice.IntN(1+dice.IntN(3*window)))
					pieces, rest = append(pieces, rest[:size]), rest[size:]
				}
				if got := inPieces(New(), "pod", pieces...); got != test.want {
					t.Fatalf("in %d pieces it is shown as %.200s", len(pieces), got)
				}
			}
		})
	}
}

// Ordinary output is not changed.
func TestOrdinaryLinesStay(t *testing.T) {
	for _, line := range []string{
		"", " ", "loss=0.1", "epoch: 3 step: 1200 loss: 0.4231 lr: 3e-4 tokens: 1234 tokens/s: 88123.5",
		"token_ids=[1,2]", "tokens: 1234", "num_tokens=4096 max_tokens: 2048", "token: 1234", "token=the", "pad_token=<pad> eos_token='</s>' bos_token=\"<s>\"",
		"eos_token: <|endoftext|>", "tokenizer.pad_token = [PAD]", "ms_per_token=12.345ms", "time per token: 12.5ms/tok", "next_token: internationalization",
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "uid=123e4567-e89b-12d3-a456-426614174000", "/workspace/model/checkpoint-1200/pytorch_model-00001-of-00002.bin",
		"key: layer1.0.weight shape=(64, 3, 7, 7)", "key=model.embed_tokens.weight", "cache key abc123def456", "PWD=/workspace OLDPWD=/root/x1",
		"https://example.com:8080/path/@scope/package1", "s3://bucket/data/a@b.csv", "ssh://git@example.com/x.git", "http://10.0.0.1:8888/?x=a@b", "user@example.com: hello",
		"see https://example.com/a:b@c", "passed: 12 failed: 0", "forward pass: 0.12s, backward pass: 0.33s", "password:", "Password: ", "no password was given",
		"password: None", "token=None", "secret = null", "private_key=/etc/ssl/private/key1.pem", "token file: /var/run/secrets/token", "token=/var/run/secrets/kubernetes.io/serviceaccount/token",
		"task-abcdefghijklmnopqrstuvwxyz012345A", "sk-learn-is-a-name-that-is-long", "bearer of bad news", "Bearer authentication is on", "Authorization: denied",
		"shelf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "-----BEGIN EPOCH 3-----", "BEGIN PRIVATE thoughts",
		"signature: forward(self, x1, x2)", "config=resnet50 sig=0.5", "AKIArubbish", "eyJhbc", "xoxb", "ghp_short", "NCCL INFO Channel 00/02 :    0   1", "[1,3]<stdout>:loss 0.1",
		"100%|██████████| 938/938 [00:12<00:00, 75.2it/s, loss=0.0421, acc=0.98]", "trireme-worker-0.trireme.default.svc:22: connected", "secrets: 4", "secretName: train-ssh",
		"compass=n12", "pass: 1000/20000", "hub_token=<HUB_TOKEN>, push_to_hub=False", "'token': None, 'use_auth_token': True", "bypass: true", "tensor([[0.1, 0.2], [0.3, 0.4]])", "{'loss': 0.1, 'token_accuracy': 0.99, 'grad_norm': 1.2}", "2026-01-01T00:00:00Z INFO step=1",
	} {
		if got := New().Line("pod", line, false); got != line {
			t.Errorf("%s\nis shown as %s", line, got)
		}
		if got := inPieces(New(), "pod", strings.Split(line, "")...); got != line {
			t.Errorf("byte by byte, %s\nis shown as %s", line, got)
		}
	}
}

// The time is linear in the length of a line: otherwise a tenant could stop the server.
func TestManyPrefixes(t *testing.T) {
	for _, beginning := range []string{
		"token=<", "password=[redacted", "password=-BEGIN", "secret=/etc/", "sk-a.", "://", "://a:b", "a://b:c/", "eyJ", "AKIAIOSFODNN7EXAMPLE/", "ghp_", "hf_", "=", "token='<", `token="`, `token=\"`,
		"--token ", "-----BEGIN ", "-BEGIN PRIVATE KEY", "END ", "Bearer ", "Authorization: Basic ", "password=,a", "password=,a=", "password=a,", "password=a;b", "password=a ", "token=a1,", "\"", " ", "\\", "pwd=/", "pass=1", "token: ", "key",
	} {
		line := strings.Repeat(beginning, 1<<20/len(beginning))
		begin := time.Now()
		shown := New().Line("pod", line, false)
		inPieces(New(), "pod", line[:1<<19], line[1<<19:])
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%q takes %s; it is shown as %.60s", beginning, took, shown)
		}
	}
}

// endsLikeSecret must accept the names of all secrets.
func TestNamesOfSecrets(t *testing.T) {
	for _, name := range certainNames {
		if strengthOf(name) != certain || strengthOf(strings.ToUpper("MY_"+name)) != certain {
			t.Errorf("%s is not certain", name)
		}
	}
	for _, name := range likelyNames {
		if strengthOf(name) != likely || strengthOf(strings.ToUpper("my-"+name)+"_2") != likely {
			t.Errorf("%s is not likely", name)
		}
	}
}

// A secret is redacted in any context and however the line is split.
func FuzzLine(f *testing.F) {
	for _, marked := range known {
		line, _, _ := secretsIn(marked)
		f.Add(line[:len(line)/2], line[len(line)/2:], uint16(7), uint16(9000))
	}
	secret := "ghp_" + random36
	f.Fuzz(func(t *testing.T, before, after string, first, fill uint16) {
		line := before + strings.Repeat(" x=1", int(fill)/4) + secret + after
		cut := min(int(first), len(line))
		for _, pieces := range [][]string{{line}, {line[:cut], line[cut:]}, {line[:cut], line[cut : cut+(len(line)-cut)/2], line[cut+(len(line)-cut)/2:]}} {
			filter := New()
			if shown := inPieces(filter, "pod", pieces...); strings.Contains(shown, secret) {
				t.Fatalf("in %d pieces: %q", len(pieces), shown)
			}
			if strings.Contains(filter.Flush("pod"), secret) {
				t.Fatal("the secret is held back and shown by Flush")
			}
		}
	})
}
