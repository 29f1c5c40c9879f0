// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

// All messages about S3, from real responses of servers.
func TestMessagesAboutS3(t *testing.T) {
	const lookAtEndpoint = "check AWS_ENDPOINT_URL_S3 in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace"
	answer := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(writer http.ResponseWriter, _ *http.Request) bool {
			s3Error(writer, status, code, "the words of the server, with "+testSecretKey+" and "+testAccessKey)
			return true
		}
	}
	onObject := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(writer http.ResponseWriter, request *http.Request) bool {
			if strings.HasPrefix(request.URL.Path, "/data/set/") {
				return answer(status, code)(writer, request)
			}
			return false
		}
	}
	cases := map[string]struct {
		uri         string
		environment map[string]string
		before      func(http.ResponseWriter, *http.Request) bool
		want        string
	}{
		"no such bucket":   {uri: "s3://nobodys/set", want: `bucket "nobodys" does not exist at HOST; check the name in storageUri, and AWS_ENDPOINT_URL_S3 in the Secret`},
		"no such object":   {uri: "s3://data/nothing", want: `no object "nothing" in bucket "data" at HOST, and no objects below it; check the path in storageUri`},
		"an unknown key":   {environment: map[string]string{accessKeyVariable: "AKIAUNKNOWNUNKNOWN"}, want: `HOST does not know the access key; check AWS_ACCESS_KEY_ID in the Secret, and AWS_ENDPOINT_URL_S3`},
		"a wrong secret":   {environment: map[string]string{secretKeyVariable: "another-secret"}, want: `the secret key does not belong to the access key at HOST; check AWS_SECRET_ACCESS_KEY in the Secret`},
		"only a key":       {environment: map[string]string{secretKeyVariable: ""}, want: `the Secret has AWS_ACCESS_KEY_ID but no AWS_SECRET_ACCESS_KEY`},
		"only a secret":    {environment: map[string]string{accessKeyVariable: ""}, want: `the Secret has AWS_SECRET_ACCESS_KEY but no AWS_ACCESS_KEY_ID`},
		"no right to list": {before: answer(http.StatusForbidden, "AccessDenied"), want: `access to the bucket "data" at HOST is denied; grant the key in AWS_ACCESS_KEY_ID of the Secret s3:ListBucket on the bucket and s3:GetObject on its objects`},
		"no right to read": {before: onObject(http.StatusForbidden, "AccessDenied"), want: `access to the object "set/a" in bucket "data" at HOST is denied; grant the key in AWS_ACCESS_KEY_ID of the Secret s3:ListBucket on the bucket and s3:GetObject on its objects`},
		"nobody": {
			environment: map[string]string{accessKeyVariable: "", secretKeyVariable: ""}, before: answer(http.StatusForbidden, "AccessDenied"),
			want: `access to the bucket "data" at HOST is denied; no access key is set: name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in secretRef`,
		},
		"a session that ended":  {before: answer(http.StatusBadRequest, "ExpiredToken"), want: `HOST rejects the session token: it is invalid or expired; renew AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the Secret`},
		"a clock that is wrong": {before: answer(http.StatusForbidden, "RequestTimeTooSkewed"), want: `the clocks of this node and of HOST differ too much; ask the cluster administrator to correct the node's clock`},
		"an archive":            {before: onObject(http.StatusForbidden, "InvalidObjectState"), want: `the object "set/a" in bucket "data" is archived; restore it to a storage class that can be read immediately`},
		"gone meanwhile":        {before: onObject(http.StatusNotFound, "NoSuchKey"), want: `the object "set/a" in bucket "data" no longer exists; restart the job when nothing changes the bucket`},
		"another region": {
			environment: map[string]string{"AWS_REGION": "us-east-1"},
			before: func(writer http.ResponseWriter, request *http.Request) bool {
				writer.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
				return answer(http.StatusBadRequest, "AuthorizationHeaderMalformed")(writer, request)
			},
			want: `bucket "data" is in another region; set AWS_REGION in the Secret to eu-central-1`,
		},
		"some other region": {
			environment: map[string]string{"AWS_DEFAULT_REGION": "us-east-1"}, before: answer(http.StatusMovedPermanently, "PermanentRedirect"),
			want: `bucket "data" is in another region; set AWS_REGION in the Secret to its region`,
		},
		"too much":       {before: answer(http.StatusServiceUnavailable, "SlowDown"), want: `HOST responds with SlowDown for the bucket "data": the words of the server, with *** and ***; restart the job later`},
		"something else": {before: answer(http.StatusMethodNotAllowed, "MethodNotAllowed"), want: `HOST responds with MethodNotAllowed for the bucket "data": the words of the server, with *** and ***; check storageUri, and AWS_ENDPOINT_URL_S3 in the Secret`},
		"no S3 server": {before: func(writer http.ResponseWriter, _ *http.Request) bool {
			_, _ = writer.Write([]byte("<html><p>Log in"))
			return true
		}, want: `HOST does not respond like an S3 server; check AWS_ENDPOINT_URL_S3 in the Secret, and whether a proxy or login page answers instead`},
		"no answer":              {before: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, want: `HOST closed the connection; ` + lookAtEndpoint},
		"no TLS":                 {environment: map[string]string{"AWS_ENDPOINT_URL_S3": "HOST"}, want: `HOST does not use TLS; if this is intended, start its URL with http:// in AWS_ENDPOINT_URL_S3 of the Secret`},
		"nobody there":           {environment: map[string]string{"AWS_ENDPOINT_URL_S3": "", "S3_ENDPOINT": "http://127.0.0.1:1"}, want: `127.0.0.1:1 refuses connections; check S3_ENDPOINT in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace`},
		"a strange address":      {environment: map[string]string{"AWS_ENDPOINT_URL_S3": "https://user:hunter2@host"}, want: `AWS_ENDPOINT_URL_S3 in the Secret must be the URL of an S3 server, such as https://host:9000, without a user or a path`},
		"an address with a path": {environment: map[string]string{"AWS_ENDPOINT_URL_S3": "", "AWS_S3_ENDPOINT": "https://host/s3"}, want: `AWS_S3_ENDPOINT in the Secret must be the URL of an S3 server, such as https://host:9000, without a user or a path`},
		"a strange style":        {environment: map[string]string{addressingVariable: "dns"}, want: `AWS_S3_ADDRESSING_STYLE in the Secret must be path, virtual or auto`},
		"a strange bundle":       {environment: map[string]string{s3BundleVariable: "-----BEGIN NOTHING"}, want: `AWS_CA_BUNDLE of the Secret: has no PEM certificate`},
		"a bundle that is not":   {environment: map[string]string{s3BundleVariable: "/nowhere"}, want: `AWS_CA_BUNDLE of the Secret: must be PEM certificates, or the path of a file with PEM certificates`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := newS3Server(t, map[string]string{"set/a": "a"})
			server.before = tc.before
			environment := server.environment()
			maps.Copy(environment, tc.environment)
			for name, value := range environment {
				environment[name] = strings.ReplaceAll(value, "HOST", server.host())
			}
			runner := newRunner(t, environment)
			runner.timing.maxFirstResponse, runner.timing.maxIdle = 50*time.Millisecond, 50*time.Millisecond
			uri := tc.uri
			if uri == "" {
				uri = "s3://data/set"
			}
			runner.refused(uri, strings.ReplaceAll(tc.want, "HOST", server.host()))
		})
	}
}

// An access key that may read an object but not list the bucket can fetch that object.
func TestSingleObjectWithoutListPermission(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a"})
	server.before = func(writer http.ResponseWriter, request *http.Request) bool {
		if strings.HasPrefix(request.URL.Path, "/data/set") {
			return false
		}
		s3Error(writer, http.StatusForbidden, "AccessDenied", "")
		return true
	}
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set/a")
	if runner.files()["a"] != "a" {
		t.Errorf("files: %v", runner.files())
	}
}

func TestTemporaryServerErrors(t *testing.T) {
	for _, code := range []string{"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"} {
		t.Run(code, func(t *testing.T) {
			server := newS3Server(t, map[string]string{"set/a": "a"})
			faults := 0
			server.before = func(writer http.ResponseWriter, request *http.Request) bool {
				// The list and the object fail a few times each.
				if faults++; faults > 12 || strings.Contains(request.URL.RawQuery, "location") || faults%4 == 0 {
					return false
				}
				s3Error(writer, http.StatusServiceUnavailable, code, "later")
				return true
			}
			runner := newRunner(t, server.environment())
			runner.fetched("s3://data/set")
		})
	}
}

func TestAddressingStyle(t *testing.T) {
	cases := map[string]struct {
		environment map[string]string
		want        string
	}{
		"Amazon":                {want: "https://data.s3.dualstack.eu-west-1.amazonaws.com/set"},
		"Amazon by path":        {environment: map[string]string{addressingVariable: "path"}, want: "https://s3.dualstack.eu-west-1.amazonaws.com/data/set"},
		"a server":              {environment: map[string]string{"AWS_ENDPOINT_URL": "http://minio.example:9000"}, want: "http://minio.example:9000/data/set"},
		"a server by name":      {environment: map[string]string{"AWS_ENDPOINT_URL": "http://minio.example:9000", addressingVariable: "virtual"}, want: "http://data.minio.example:9000/set"},
		"a server of S3 alone":  {environment: map[string]string{"AWS_ENDPOINT_URL": "http://all.example", "AWS_ENDPOINT_URL_S3": "http://s3.example"}, want: "http://s3.example/data/set"},
		"a data connection":     {environment: map[string]string{"AWS_S3_ENDPOINT": "https://s3.example/"}, want: "https://s3.example/data/set"},
		"a server without more": {environment: map[string]string{"S3_ENDPOINT": "minio.example:9000"}, want: "https://minio.example:9000/data/set"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			environment := map[string]string{accessKeyVariable: testAccessKey, secretKeyVariable: testSecretKey, "AWS_REGION": "eu-west-1"}
			maps.Copy(environment, tc.environment)
			made, err := newBucket(location{scheme: schemeS3, container: "data", path: "set"}, func(name string) string { return environment[name] }, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			address, err := made.client.PresignedGetObject(t.Context(), "data", "set", time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			address.RawQuery = ""
			if got := address.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestSessionTokenIsPrinted(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a"})
	var shown string
	server.before = func(_ http.ResponseWriter, request *http.Request) bool {
		shown = request.Header.Get("X-Amz-Security-Token")
		return false
	}
	environment := server.environment()
	environment[sessionTokenVariable] = "session-of-the-tests"
	newRunner(t, environment).fetched("s3://data/set")
	if shown != "session-of-the-tests" {
		t.Errorf("the session token is %q", shown)
	}
}

func TestChecksumsOfObjects(t *testing.T) {
	const etag = "9e107d9d372bb6826bd81d3542a419d6"
	cases := map[string]struct {
		object minio.ObjectInfo
		header http.Header
		want   checksum
	}{
		"an MD5":                  {object: minio.ObjectInfo{ETag: `"` + etag + `"`}, want: checksum{etag, md5Sum}},
		"an MD5 of parts":         {object: minio.ObjectInfo{ETag: etag + "-3"}},
		"the server's encryption": {object: minio.ObjectInfo{ETag: etag}, header: http.Header{"X-Amz-Server-Side-Encryption": {"AES256"}}, want: checksum{etag, md5Sum}},
		"a key of the account":    {object: minio.ObjectInfo{ETag: etag}, header: http.Header{"X-Amz-Server-Side-Encryption": {"aws:kms"}}},
		"a key of the user":       {object: minio.ObjectInfo{ETag: etag}, header: http.Header{"X-Amz-Server-Side-Encryption-Customer-Algorithm": {"AES256"}}},
		"CRC-64/NVME":             {object: minio.ObjectInfo{ETag: etag + "-3", ChecksumCRC64NVME: "rosUhgp5mIg=", ChecksumMode: "FULL_OBJECT"}, want: checksum{"ae8b14860a799888", crc64NVME}},
		"CRC-32C before the ETag": {object: minio.ObjectInfo{ETag: etag, ChecksumCRC32C: "4waSgw=="}, want: checksum{"e3069283", crc32C}},
		"sums of parts":           {object: minio.ObjectInfo{ETag: etag + "-3", ChecksumSHA256: "4waSgw==", ChecksumMode: "COMPOSITE"}},
		"sums of parts, unnamed":  {object: minio.ObjectInfo{ETag: etag + "-3", ChecksumSHA256: "4waSgw==-3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := checksumOf(tc.object, tc.header); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
