// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	messages "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// tryREST asks for every path of the server's own document.
func (border *border) tryREST(t *testing.T) {
	_, document := border.server.curl(t, border.intruder, "GET", "/openapi.json", nil)
	for _, route := range surface.Routes(t, []byte(document)) {
		name := nameFor(route.Path)
		ask := func(name string) (int, string) {
			path, body := route.In(border.owner.namespace, name)
			var content []byte
			if body != nil {
				content, _ = io.ReadAll(body)
			}
			return border.server.curl(t, border.intruder, route.Method, path, content, "--header", "Accept: text/event-stream, application/json")
		}
		what := route.Method + " " + route.Path
		code, there := ask(name)
		missingCode, missing := ask(absent)
		border.wantAlike(t, what, name, there, missing)
		switch {
		case code != missingCode:
			t.Errorf("%s answers %d for what is there and %d for what is not", what, code, missingCode)
		case route.ForCluster():
		case strings.HasSuffix(route.Path, "/preflight"):
			if code != http.StatusOK || !strings.Contains(there, "You may not create") {
				t.Errorf("%s: %d\n%s", what, code, there)
			}
		case code != http.StatusForbidden || !strings.Contains(there, border.intruder.name):
			t.Errorf("%s: %d\n%s", what, code, there)
		}
	}
}

// tryRPC calls every method that the server itself names, for both kinds.
func (border *border) tryRPC(t *testing.T) {
	connection := border.server.dial(t)
	for _, method := range surface.Methods(t, connection, border.intruder.token) {
		for kind := range border.jobs {
			what, name := string(method.FullName()), nameFor(kind)
			if strings.HasSuffix(what, "Runtime") {
				name = "hidden"
			}
			there, err := surface.Call(t, connection, border.intruder.token, method, surface.Request(t, method, kind, border.owner.namespace, name))
			missing, missingErr := surface.Call(t, connection, border.intruder.token, method, surface.Request(t, method, kind, border.owner.namespace, absent))
			border.wantAlike(t, what, name, fmt.Sprint(there, err), fmt.Sprint(missing, missingErr))
			if method.Name() == "Preflight" {
				if err != nil || !strings.Contains(there, "You may not create") {
					t.Errorf("%s: %s %v", what, there, err)
				}
				continue
			}
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), border.intruder.name) {
				t.Errorf("%s: %s %v", what, there, err)
			}
		}
	}
}

// tryWebSocket opens a WebSocket at every path that can be read, whether or not it is
// meant for one.
func (border *border) tryWebSocket(t *testing.T) {
	_, document := border.server.curl(t, border.intruder, "GET", "/openapi.json", nil)
	tried := 0
	for _, route := range surface.Routes(t, []byte(document)) {
		if route.Method != "GET" || route.ForCluster() || strings.HasSuffix(route.Path, "/preflight") {
			continue
		}
		path, _ := route.In(border.owner.namespace, nameFor(route.Path))
		// The logs of the history are complete.
		if strings.Contains(path, "/logs") && !strings.Contains(path, "/history/") {
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "follow=true"
		}
		connection, response, err := border.server.listen(t, border.intruder, path, nil)
		tried++
		if err == nil {
			_, message, _ := connection.ReadMessage()
			t.Errorf("%s is opened, and tells %s", path, message)
		} else if response == nil || response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v %v", path, response, err)
		}
	}
	if tried < 20 {
		t.Errorf("only %d paths were tried", tried)
	}
}

// tryAllNamespaces lists and watches everywhere: that is, where one may.
func (border *border) tryAllNamespaces(t *testing.T) {
	for _, plural := range plurals {
		for _, path := range []string{"/api/v1/" + plural, "/api/v1/" + plural + "?namespace=", "/api/v1/" + plural + "?search=hidden", "/api/v1/" + plural + "?status=Running&limit=1000"} {
			code, answer := border.server.curl(t, border.intruder, "GET", path, nil)
			border.wantSilence(t, path, answer)
			if code == http.StatusOK && (strings.Contains(answer, "hidden") || strings.Contains(answer, border.owner.namespace)) {
				t.Errorf("%s: %s", path, answer)
			}
		}
		for _, path := range []string{"/api/v1/watch/" + plural, "/api/v1/watch/namespaces//" + plural, "/api/v1/watch/namespaces/*/" + plural, "/api/v1/watch/namespaces/%20/" + plural} {
			code, answer := border.server.curl(t, border.intruder, "GET", path, nil, "--header", "Accept: text/event-stream", "--path-as-is", "--globoff", "--max-time", "5")
			border.wantSilence(t, path, answer)
			if code < 400 && code != http.StatusMovedPermanently || strings.Contains(answer, "hidden") {
				t.Errorf("%s: %d %s", path, code, answer)
			}
		}
	}
	connection := border.server.dial(t)
	for kind := range border.jobs {
		for _, namespace := range []string{"", "*", border.intruder.namespace + "," + border.owner.namespace} {
			ctx, cancel := context.WithTimeout(surface.WithToken(t.Context(), border.intruder.token), 5*time.Second)
			watching, err := messages.NewJobServiceClient(connection).WatchJobs(ctx, &messages.WatchJobsRequest{Kind: kind, Namespace: namespace})
			for err == nil {
				var message *messages.JobEvent
				if message, err = watching.Recv(); err == nil {
					t.Errorf("a watch of namespace %q tells %v", namespace, message)
				}
			}
			cancel()
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.PermissionDenied {
				t.Errorf("a watch of namespace %q ends with %v", namespace, err)
			}
		}
	}
}

// tryPaths has one namespace checked and another one read, if that were possible.
func (border *border) tryPaths(t *testing.T) {
	own, other := border.intruder.namespace, border.owner.namespace
	for _, path := range []string{
		own + "/../" + other + "/mpijobs", own + "/%2e%2e/" + other + "/mpijobs", own + "%2f..%2f" + other + "/mpijobs", own + "/mpijobs/../../" + other + "/mpijobs", own + "//" + other + "/mpijobs",
		"/" + other + "/mpijobs", own + "/mpijobs?namespace=" + other, other + "%00/mpijobs", other + "%20/mpijobs", other + "./mpijobs", strings.ToUpper(other) + "/mpijobs",
		own + "/mpijobs/hidden-mpijob?namespace=" + other, own + "/mpijobs/..%2f..%2f" + other + "%2fmpijobs%2fhidden-mpijob", own + "/mpijobs/hidden-mpijob/logs?namespace=" + other,
		own + "/mpijobs/..%2f..%2f..%2fnamespaces%2f" + other + "%2fpods/logs", own + "/trainingruntimes/..%2f..%2f" + other + "%2ftrainingruntimes%2fhidden",
		own + "/mpijobs?fieldSelector=metadata.namespace=" + other, own + "/mpijobs?labelSelector=" + "a!=b", own + "/mpijobs;namespace=" + other, own + "/mpijobs/hidden-mpijob/../../../" + other + "/mpijobs/hidden-mpijob",
	} {
		code, answer := border.server.curl(t, border.intruder, "GET", "/api/v1/namespaces/"+path, nil, "--path-as-is", "--globoff", "--max-time", "10")
		border.wantSilence(t, path, answer)
		if code == http.StatusOK && strings.Contains(answer, `"hidden`) || code >= 500 {
			t.Errorf("%s: %d\n%.1000s", path, code, answer)
		}
	}
	for _, header := range []string{"X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix", "X-HTTP-Method-Override", "X-Forwarded-For", "Forwarded"} {
		code, answer := border.server.curl(t, border.intruder, "GET", "/api/v1/namespaces/"+own+"/mpijobs", nil, "--header", header+": /api/v1/namespaces/"+other+"/mpijobs")
		if border.wantSilence(t, header, answer); code != http.StatusOK || strings.Contains(answer, "hidden") {
			t.Errorf("%s: %d\n%s", header, code, answer)
		}
	}
	// A job that says itself that it belongs elsewhere.
	for kind, plural := range plurals {
		body := strings.Replace(string(manifest(t, kind, "mine", waiting)), `"name":"mine"`, fmt.Sprintf(`"name":"mine","namespace":%q`, other), 1)
		for _, path := range []string{"/" + plural, "/preflight"} {
			code, answer := border.server.curl(t, border.intruder, "POST", "/api/v1/namespaces/"+own+path, []byte(body))
			if border.wantSilence(t, path, answer); code != http.StatusBadRequest && code != http.StatusForbidden {
				t.Errorf("%s: %d\n%s", path, code, answer)
			}
		}
	}
}

// tryImpersonation says to be somebody else, in every way that some server believes.
func (border *border) tryImpersonation(t *testing.T) {
	path := "/api/v1/namespaces/" + border.owner.namespace + "/mpijobs"
	connection := border.server.dial(t)
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Preferred-Username", "Remote-User", "X-Auth-Request-User"} {
		for _, somebody := range []string{border.owner.name, "system:admin"} {
			more := []string{"--header", name + ": " + somebody}
			for _, groups := range []string{"Impersonate-Group", "X-Remote-Group", "X-Forwarded-Groups"} {
				more = append(more, "--header", groups+": system:masters")
			}
			code, answer := border.server.curl(t, border.intruder, "GET", path, nil, more...)
			border.wantForbidden(t, name, httpAnswer{code, answer})
			if code, answer := border.server.curl(t, user{}, "GET", path, nil, append(more, "--header", "Authorization:")...); code != http.StatusUnauthorized {
				t.Errorf("%s without a token: %d %s", name, code, answer)
			}
			ctx := surface.WithToken(t.Context(), border.intruder.token)
			_, err := messages.NewMPIJobServiceClient(connection).GetMPIJob(metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), somebody, "impersonate-group", "system:masters"),
				&messages.GetMPIJobRequest{Namespace: border.owner.namespace, Name: "hidden-mpijob"})
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), border.intruder.name) {
				t.Errorf("%s over gRPC: %v", name, err)
			}
		}
	}
	_, answer := border.server.curl(t, user{}, "GET", path, nil, "--header", "Authorization:", "--header", "X-Forwarded-Access-Token: "+border.intruder.token)
	border.wantSilence(t, "X-Forwarded-Access-Token", answer)
}

// tryTokens comes with others' tokens, and with such as were good once.
func (border *border) tryTokens(t *testing.T) {
	key := border.signingKey(t)
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	intruders := strings.TrimSpace(kubectl(t, "create token default --namespace "+border.intruder.namespace))
	elsewhere := strings.TrimSpace(kubectl(t, "create token scientist --audience=https://elsewhere.example --namespace "+border.owner.namespace))
	jobs := "/api/v1/namespaces/" + border.owner.namespace + "/mpijobs"
	for what, test := range map[string]struct {
		token string
		code  int
	}{
		"signed as the cluster does, and good":   {signed(t, border.owner.token, later, key), http.StatusOK},
		"expired":                                {signed(t, border.owner.token, earlier, key), http.StatusUnauthorized},
		"of another authority":                   {signed(t, border.owner.token, later, another), http.StatusUnauthorized},
		"without a signature":                    {unsigned(t, border.owner.token), http.StatusUnauthorized},
		"meant for somebody else":                {elsewhere, http.StatusUnauthorized},
		"of a service account of the intruder's": {intruders, http.StatusForbidden},
	} {
		code, answer := border.server.curl(t, user{token: test.token}, "GET", jobs, nil)
		if code != test.code {
			t.Errorf("a token %s: %d, want %d\n%.500s", what, code, test.code, answer)
		}
		if code != http.StatusOK {
			border.wantSilence(t, what, answer)
		}
		_, err := messages.NewMPIJobServiceClient(border.server.dial(t)).ListMPIJobs(surface.WithToken(t.Context(), test.token), &messages.ListMPIJobsRequest{Namespace: border.owner.namespace})
		if want := map[int]codes.Code{200: codes.OK, 401: codes.Unauthenticated, 403: codes.PermissionDenied}[test.code]; status.Code(err) != want {
			t.Errorf("a token %s over gRPC: %v", what, err)
		}
	}
}

// signingKey is what the cluster signs the tokens of service accounts with.
func (border *border) signingKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	needsLocalCluster(t, "tokens are signed with the key of the API server")
	content, err := shell(`eval "$(bin/cluster env)" && cat "$(dirname "$KUBECONFIG")/pki/service-account.key"`)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(content))
	if block == nil {
		t.Fatal("the cluster's key is no PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is a token with the claims of another, that is good until a time.
func signed(t *testing.T, like string, until time.Time, key *ecdsa.PrivateKey) string {
	t.Helper()
	claims := claimsOf(t, like)
	claims["exp"], claims["iat"], claims["nbf"] = until.Unix(), until.Add(-2*time.Hour).Unix(), until.Add(-2*time.Hour).Unix()
	content, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256"}`)) + "." + base64.RawURLEncoding.EncodeToString(content)
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func unsigned(t *testing.T, like string) string {
	t.Helper()
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + strings.Split(like, ".")[1] + "."
}

func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(content, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// tryMetrics: the operator's name namespaces, and are for who may read them; the
// server's are open, and name nobody.
func (border *border) tryMetrics(t *testing.T) {
	authority := authorityFile(t)
	for _, found := range podAddresses(t, "operator") {
		for _, token := range []string{"", "none-of-this-cluster", border.intruder.token} {
			output, err := shell(fmt.Sprintf("curl --silent --show-error %s --max-time 20 --write-out '\n%%{http_code}' --header 'Authorization: Bearer %s'", operatorMetrics(authority, found), token))
			if err != nil || !strings.HasSuffix(output, "\n401") && !strings.HasSuffix(output, "\n403") {
				t.Errorf("the operator's metrics: %v\n%.500s", err, output)
			}
			border.wantSilence(t, "the operator's metrics", output)
		}
	}
	for _, found := range podAddresses(t, "server") {
		output, err := shell("curl --silent --show-error --fail --max-time 20 http://" + found + ":8081/metrics")
		if err != nil || !strings.Contains(output, "# HELP") {
			t.Errorf("the server's metrics: %v\n%.500s", err, output)
		}
		for _, name := range []string{border.inside, border.owner.namespace, border.intruder.namespace, "hidden-", "scientist"} {
			if strings.Contains(output, name) {
				t.Errorf("the server's metrics name %s", name)
			}
		}
	}
}

// webhookName is the name in the operator's certificate.
const webhookName = "trireme-webhook.trireme-system.svc"

// operatorMetrics are arguments of curl for the metrics of the operator at an address.
func operatorMetrics(authority, address string) string {
	return fmt.Sprintf("--cacert %s --connect-to %s:8443:%s:8443 https://%s:8443/metrics", authority, webhookName, address, webhookName)
}

// podAddresses are those of the pods of the operator, or of the server.
func podAddresses(t *testing.T, component string) []string {
	t.Helper()
	needsLocalCluster(t, "pods are called from this machine")
	found := strings.Fields(kubectl(t, "get pods -n trireme-system -l app.kubernetes.io/component="+component+" -o jsonpath='{.items[*].status.podIP}'"))
	if len(found) == 0 {
		t.Fatalf("the %s has no pods", component)
	}
	return found
}
