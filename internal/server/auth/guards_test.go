// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// apiServer responds to reviews, and records the requests.
type apiServer struct {
	mutex sync.Mutex
	// users by token; a token is revoked by removing it.
	users map[string]authenticationv1.UserInfo
	// allowed are users with their permissions, as "jane create mpijobs team-cv".
	allowed map[string]bool
	// byGroup is the group that every permission needs; "" for none.
	byGroup string
	broken  bool
	// asked are the requested paths with the identity of the client.
	asked []string
	// reviewed are the requested permission reviews.
	reviewed []authorizationv1.SubjectAccessReviewSpec
}

func (a *apiServer) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	as := token
	if impersonated := request.Header.Get("Impersonate-User"); impersonated != "" {
		as += " as " + impersonated
	}
	a.asked = append(a.asked, as+" "+request.URL.Path)
	if a.broken {
		http.Error(writer, "etcd is away", http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(request.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		review.Status.User, review.Status.Authenticated = a.users[review.Spec.Token], a.users[review.Spec.Token].Username != ""
		_ = json.NewEncoder(writer).Encode(review)
	case strings.HasSuffix(request.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		a.reviewed = append(a.reviewed, review.Spec)
		about := review.Spec.ResourceAttributes
		review.Status.Allowed = a.allowed[strings.Join([]string{review.Spec.User, about.Verb, about.Resource, about.Namespace}, " ")] &&
			(a.byGroup == "" || slices.Contains(review.Spec.Groups, a.byGroup))
		_ = json.NewEncoder(writer).Encode(review)
	case strings.HasSuffix(request.URL.Path, "/selfsubjectreviews"):
		if a.users[token].Username == "" {
			writer.WriteHeader(http.StatusUnauthorized)
			_, _ = writer.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":401,"reason":"Unauthorized","message":"Unauthorized"}`))
			return
		}
		_ = json.NewEncoder(writer).Encode(authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: a.users[token]}})
	default:
		_, _ = writer.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`))
	}
}

// change changes the cluster while a guard has cached results.
func (a *apiServer) change(change func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	change()
}

func (a *apiServer) start(t *testing.T) *rest.Config {
	t.Helper()
	listening := httptest.NewServer(a)
	t.Cleanup(listening.Close)
	// Otherwise client-go uses protobuf.
	content := rest.ContentConfig{ContentType: "application/json"}
	return &rest.Config{Host: listening.URL, BearerToken: "own", ContentConfig: content}
}

func withBearer(token string) *http.Request {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request
}

var jane = authenticationv1.UserInfo{Username: "jane", UID: "u1", Groups: []string{"team-cv"}, Extra: map[string]authenticationv1.ExtraValue{"scopes.authorization.openshift.io": {"user:info"}}}

func newInCluster(t *testing.T, server *apiServer, proxy *Proxy) (*InCluster, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	guard, err := NewInCluster(server.start(t), proxy, clock)
	if err != nil {
		t.Fatal(err)
	}
	return guard, clock
}

func TestInClusterActsAsTheCaller(t *testing.T) {
	server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}}
	guard, _ := newInCluster(t, server, nil)
	caller, err := guard.Identify(t.Context(), withBearer("abc"))
	if err != nil {
		t.Fatal(err)
	}
	if caller.User != "jane" || caller.UID != "u1" || caller.Source != "192.0.2.1" || !cmp.Equal(caller.Groups, jane.Groups) {
		t.Errorf("the caller is %+v", caller)
	}
	var pod corev1.Pod
	if err := caller.Client.Get(t.Context(), client.ObjectKey{Namespace: "team-cv", Name: "p"}, &pod); err != nil {
		t.Fatal(err)
	}
	if _, err := caller.Cluster.CoreV1().Pods("team-cv").GetLogs("p", &corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"own /apis/authentication.k8s.io/v1/tokenreviews", "abc /api/v1/namespaces/team-cv/pods/p", "abc /api/v1/namespaces/team-cv/pods/p/log"}
	if difference := cmp.Diff(want, server.asked); difference != "" {
		t.Error(difference)
	}
}

func TestInClusterKeepsTokensShortly(t *testing.T) {
	server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}}
	guard, clock := newInCluster(t, server, nil)
	caller, err := guard.Identify(t.Context(), withBearer("abc"))
	if err != nil {
		t.Fatal(err)
	}
	server.change(func() { delete(server.users, "abc") })
	clock.SetTime(clock.Now().Add(keepGranted - time.Second))
	if err := guard.StillValid(t.Context(), caller); err != nil {
		t.Errorf("an answer that is 29 s old was not believed: %v", err)
	}
	if len(server.asked) != 1 {
		t.Errorf("asked %q", server.asked)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	for what, err := range map[string]error{"a stream": guard.StillValid(t.Context(), caller), "a call": identifyError(t, guard, "abc")} {
		if apierror.From(err).Code != http.StatusUnauthorized {
			t.Errorf("%s of a revoked token: %v", what, err)
		}
	}
	server.change(func() { server.users["abc"] = jane })
	clock.SetTime(clock.Now().Add(keepRefused))
	if err := guard.StillValid(t.Context(), caller); err != nil {
		t.Errorf("a token that holds again: %v", err)
	}
}

func identifyError(t *testing.T, guard Guard, token string) error {
	_, err := guard.Identify(t.Context(), withBearer(token))
	return err
}

func TestInClusterRefuses(t *testing.T) {
	authority := newAuthority(t)
	believing, err := NewProxy(ProxyOptions{AuthorityFile: authority.file, Names: []string{"oauth-proxy"}, Impersonate: true, GroupsHeader: "X-Forwarded-Groups"})
	if err != nil {
		t.Fatal(err)
	}
	doubting, err := NewProxy(ProxyOptions{AuthorityFile: authority.file, Names: []string{"oauth-proxy"}})
	if err != nil {
		t.Fatal(err)
	}
	withoutGroups, err := NewProxy(ProxyOptions{AuthorityFile: authority.file, Names: []string{"oauth-proxy"}, Impersonate: true})
	if err != nil {
		t.Fatal(err)
	}
	peer := &tls.ConnectionState{PeerCertificates: authority.issue(t, "oauth-proxy", x509.ExtKeyUsageClientAuth)}
	for name, test := range map[string]struct {
		proxy   *Proxy
		tls     *tls.ConnectionState
		headers map[string]string
		broken  bool
		code    int
		message string
		// user is the expected user.
		user string
	}{
		"nobody":                              {code: 401, message: "the request has no token"},
		"a token that nobody has":             {headers: map[string]string{"Authorization": "Bearer no"}, code: 401, message: "Authentication failed: the token is invalid or expired"},
		"an API server that fails":            {headers: map[string]string{"Authorization": "Bearer abc"}, broken: true, code: 503, message: "The API server cannot check"},
		"headers without a certificate":       {proxy: believing, headers: map[string]string{"X-Forwarded-User": "jane", "X-Forwarded-Access-Token": "abc"}, code: 401, message: "the request has no token"},
		"headers where no proxy is trusted":   {tls: peer, headers: map[string]string{"X-Forwarded-User": "jane", "X-Forwarded-Access-Token": "abc"}, code: 401, message: "the request has no token"},
		"a proxy with a token":                {proxy: doubting, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "X-Forwarded-Access-Token": "abc"}, user: "jane"},
		"a proxy with a bad token":            {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "jane", "X-Forwarded-Access-Token": "no"}, code: 401, message: "the token is invalid"},
		"a proxy without a token":             {proxy: doubting, tls: peer, headers: map[string]string{"X-Forwarded-User": "jane"}, code: 401, message: `The proxy names user "jane" but sends no token for that user`},
		"a proxy that is believed":            {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "X-Forwarded-Groups": "team-nlp"}, user: "max"},
		"a proxy that names the cluster":      {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "system:admin"}, code: 401, message: "names that start with system:"},
		"a proxy that names masters":          {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "X-Forwarded-Groups": "a,system:masters"}, code: 401, message: "names that start with system:"},
		"groups that no header is for":        {proxy: withoutGroups, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "X-Forwarded-Groups": "system:masters"}, user: "max"},
		"a proxy that says nothing":           {proxy: believing, tls: peer, code: 401, message: "the request has no token"},
		"a token of one's own counts first":   {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "Authorization": "Bearer abc"}, user: "jane"},
		"a bad one is not helped by a header": {proxy: believing, tls: peer, headers: map[string]string{"X-Forwarded-User": "max", "Authorization": "Bearer no"}, code: 401, message: "the token is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}, broken: test.broken}
			guard, _ := newInCluster(t, server, test.proxy)
			request := withBearer("")
			request.TLS = test.tls
			for header, value := range test.headers {
				request.Header.Set(header, value)
			}
			caller, err := guard.Identify(t.Context(), request)
			if test.user != "" {
				if err != nil || caller.User != test.user {
					t.Fatalf("got %+v and %v", caller, err)
				}
				return
			}
			told := apierror.From(err)
			if told.Code != test.code || !strings.Contains(told.Message, test.message) || len(told.Suggestions) == 0 {
				t.Errorf("%d %s %q", told.Code, told.Message, told.Suggestions)
			}
			if strings.Contains(told.Message, "etcd") {
				t.Errorf("clients learn why the server failed: %s", told.Message)
			}
		})
	}
}

func TestImpersonatedUsersActAsThemselves(t *testing.T) {
	authority := newAuthority(t)
	proxy, err := NewProxy(ProxyOptions{AuthorityFile: authority.file, Names: []string{"oauth-proxy"}, Impersonate: true, GroupsHeader: "X-Forwarded-Groups"})
	if err != nil {
		t.Fatal(err)
	}
	server := &apiServer{}
	guard, _ := newInCluster(t, server, proxy)
	request := withBearer("")
	request.TLS = &tls.ConnectionState{PeerCertificates: authority.issue(t, "oauth-proxy", x509.ExtKeyUsageClientAuth)}
	request.Header.Set("X-Forwarded-User", "max")
	caller, err := guard.Identify(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := caller.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "p"}, &pod); err != nil {
		t.Fatal(err)
	}
	if err := guard.StillValid(t.Context(), caller); err != nil {
		t.Error(err)
	}
	if difference := cmp.Diff([]string{"own as max /api/v1/namespaces/n/pods/p"}, server.asked); difference != "" {
		t.Error(difference)
	}
	// The proxy's user is cached; sending the same text as a token must not work.
	for _, said := range []string{"max", `{"username":"max","groups":["system:authenticated"]}`} {
		if _, err := guard.Identify(t.Context(), withBearer(said)); apierror.From(err).Code != http.StatusUnauthorized {
			t.Errorf("%s gets in as a token: %v", said, err)
		}
	}
}

// A stream lasts longer than cached results: its permissions and groups are reviewed
// again, like its token.
func TestStreamsLosePermissions(t *testing.T) {
	list := Permission{Verb: "list", Group: "kubeflow.org", Resource: "mpijobs", Namespace: "team-cv"}
	for name, test := range map[string]struct {
		change func(*apiServer)
		code   int
	}{
		"nothing":            {change: func(*apiServer) {}},
		"the right":          {change: func(server *apiServer) { server.allowed = nil }, code: 403},
		"the token":          {change: func(server *apiServer) { server.users = nil }, code: 401},
		"another has it now": {change: func(server *apiServer) { server.users["abc"] = authenticationv1.UserInfo{Username: "jane", UID: "u2"} }, code: 401},
		"a group, by its name": {change: func(server *apiServer) {
			server.users["abc"] = authenticationv1.UserInfo{Username: "jane", UID: "u1"}
			server.byGroup = "team-cv"
		}, code: 403},
		"nobody can be asked": {change: func(server *apiServer) { server.broken = true }, code: 503},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}, allowed: map[string]bool{"jane list mpijobs team-cv": true}}
			guard, clock := newInCluster(t, server, nil)
			caller, err := guard.Identify(t.Context(), withBearer("abc"))
			if err != nil {
				t.Fatal(err)
			}
			if err := guard.Allow(t.Context(), caller, list); err != nil {
				t.Fatal(err)
			}
			server.change(func() { test.change(server) })
			if err := guard.StillValid(t.Context(), caller); err != nil {
				t.Errorf("asked again at once: %v", err)
			}
			clock.SetTime(clock.Now().Add(keepGranted))
			err = guard.StillValid(t.Context(), caller)
			if test.code == 0 && err != nil || test.code != 0 && apierror.From(err).Code != test.code {
				t.Errorf("%v, want %d", err, test.code)
			}
		})
	}
}

func TestInClusterAllows(t *testing.T) {
	server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}, allowed: map[string]bool{"jane list mpijobs team-cv": true}}
	guard, clock := newInCluster(t, server, nil)
	caller, err := guard.Identify(t.Context(), withBearer("abc"))
	if err != nil {
		t.Fatal(err)
	}
	list := Permission{Verb: "list", Group: "kubeflow.org", Resource: "mpijobs", Namespace: "team-cv"}
	for range 3 {
		if err := guard.Allow(t.Context(), caller, list); err != nil {
			t.Fatal(err)
		}
	}
	if len(server.reviewed) != 1 {
		t.Errorf("%d reviews for the same", len(server.reviewed))
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "jane", UID: "u1", Groups: []string{"team-cv"}, Extra: map[string]authorizationv1.ExtraValue{"scopes.authorization.openshift.io": {"user:info"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: "kubeflow.org", Resource: "mpijobs", Namespace: "team-cv"},
	}
	if difference := cmp.Diff(want, server.reviewed[0]); difference != "" {
		t.Error(difference)
	}
	// A permission of one user does not apply to another with the same name and other
	// groups.
	other := &Caller{User: caller.User, UID: caller.UID, Groups: []string{"team-nlp"}, extra: caller.extra}
	if err := guard.Allow(t.Context(), other, list); err != nil || len(server.reviewed) != 2 {
		t.Errorf("%d reviews (%v)", len(server.reviewed), err)
	}
	server.change(func() { server.allowed = nil })
	clock.SetTime(clock.Now().Add(keepGranted))
	if err := guard.Allow(t.Context(), caller, list); apierror.From(err).Code != http.StatusForbidden {
		t.Errorf("a right that was taken away: %v", err)
	}
}

func TestForbiddenNamesEverything(t *testing.T) {
	for want, rights := range map[string]Permission{
		`User "jane" may not create mpijobs.kubeflow.org in namespace "team-cv"`:        {Verb: "create", Group: "kubeflow.org", Resource: "mpijobs", Namespace: "team-cv"},
		`User "jane" may not get pods/log "worker-0" in namespace "team-cv"`:            {Verb: "get", Resource: "pods", Subresource: "log", Namespace: "team-cv", Name: "worker-0"},
		`User "jane" may not list trainjobs.kubeflow.org at the cluster scope`:          {Verb: "list", Group: "kubeflow.org", Resource: "trainjobs"},
		`User "jane" may not get trainjobs.kubeflow.org "hello" in namespace "team-cv"`: {Verb: "get", Group: "kubeflow.org", Resource: "trainjobs", Namespace: "team-cv", Name: "hello"},
	} {
		t.Run(want, func(t *testing.T) {
			got := forbidden(&Caller{User: "jane"}, rights)
			if got.Message != want || got.Code != http.StatusForbidden || got.Reason != "Forbidden" || len(got.Suggestions) == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestPassThrough(t *testing.T) {
	server := &apiServer{users: map[string]authenticationv1.UserInfo{"own": {Username: "me"}, "abc": jane}}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	guard := NewPassThrough(server.start(t), clock)
	if another := NewPassThrough(&rest.Config{}, clock); another.SessionToken() == guard.SessionToken() || len(guard.SessionToken()) < 20 {
		t.Errorf("the session token %q can be guessed", guard.SessionToken())
	}
	for name, test := range map[string]struct {
		token, user, as string
		code            int
	}{
		"the session token":          {token: guard.SessionToken(), user: "me", as: "own"},
		"a token of somebody's":      {token: "abc", user: "jane", as: "abc"},
		"a token of nobody's":        {token: "no", code: 401},
		"nothing":                    {code: 401},
		"almost the session's token": {token: guard.SessionToken()[:10], code: 401},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := guard.Identify(t.Context(), withBearer(test.token))
			if test.code != 0 {
				if told := apierror.From(err); told.Code != test.code || len(told.Suggestions) == 0 {
					t.Errorf("%+v", told)
				}
				return
			}
			if err != nil || caller.User != test.user {
				t.Fatalf("%+v and %v", caller, err)
			}
			if err := guard.Allow(t.Context(), caller, Permission{Verb: "delete", Resource: "pods"}); err != nil {
				t.Error(err)
			}
			server.change(func() { server.asked = nil })
			var pod corev1.Pod
			if err := caller.Client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "p"}, &pod); err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff([]string{test.as + " /api/v1/namespaces/n/pods/p"}, server.asked); difference != "" {
				t.Error(difference)
			}
		})
	}
	caller, err := guard.Identify(t.Context(), withBearer("abc"))
	if err != nil {
		t.Fatal(err)
	}
	server.change(func() { delete(server.users, "abc") })
	clock.SetTime(clock.Now().Add(keepGranted))
	if err := guard.StillValid(t.Context(), caller); apierror.From(err).Code != http.StatusUnauthorized {
		t.Errorf("a revoked token: %v", err)
	}
}
