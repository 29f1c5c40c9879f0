package initializer

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

var errDenied = errors.New("access denied")

func isDenied(err error) bool { return errors.Is(err, errDenied) }

// explain says in plain words what a server, or the way to it, answered about an
// object or, without a key, about the bucket.
func (bucket *bucket) explain(ctx context.Context, err error, key string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var response minio.ErrorResponse
	var syntax *xml.SyntaxError
	answered := errors.As(err, &response)
	if answered && response.StatusCode == 0 || errors.As(err, &syntax) {
		return &Failure{
			What:   fmt.Sprintf("%s does not answer as an S3 server does", bucket.endpoint),
			Advice: fmt.Sprintf("check %s in the Secret, and whether a proxy or login page answers in its place", bucket.endpointVariable),
			cause:  err,
		}
	}
	if !answered {
		return unreachable(err, bucket.endpoint, bucket.endpointVariable, s3BundleVariable)
	}
	failure := bucket.answered(&response, key)
	if failure.cause == nil {
		failure.cause = err
	}
	return failure
}

// answered is what an error of S3 means.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
func (bucket *bucket) answered(response *minio.ErrorResponse, key string) *Failure {
	what := fmt.Sprintf("bucket %q", bucket.container)
	if key != "" {
		what = fmt.Sprintf("object %q in bucket %q", key, bucket.container)
	}
	switch response.Code {
	case "NoSuchBucket":
		return &Failure{
			What:   fmt.Sprintf("there is no bucket %q at %s", bucket.container, bucket.endpoint),
			Advice: fmt.Sprintf("check the name in storageUri, and %s in the Secret", bucket.endpointVariable),
		}
	case "NoSuchKey":
		return &Failure{What: fmt.Sprintf("the %s is not there any more", what), Advice: "start the job again when nobody changes the bucket"}
	case "InvalidAccessKeyId":
		return &Failure{
			What:   fmt.Sprintf("%s does not know the access key", bucket.endpoint),
			Advice: fmt.Sprintf("check %s in the Secret, and %s", accessKeyVariable, bucket.endpointVariable),
		}
	case "SignatureDoesNotMatch":
		return &Failure{What: fmt.Sprintf("the secret key does not belong to the access key at %s", bucket.endpoint), Advice: fmt.Sprintf("check %s in the Secret", secretKeyVariable)}
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return &Failure{What: fmt.Sprintf("%s does not accept the session token, or no more", bucket.endpoint), Advice: fmt.Sprintf("renew %s, %s and %s in the Secret", accessKeyVariable, secretKeyVariable, sessionTokenVariable)}
	case "RequestTimeTooSkewed":
		return &Failure{What: fmt.Sprintf("the clocks of this node and of %s differ too much", bucket.endpoint), Advice: "ask an administrator to set the node's clock"}
	case "InvalidObjectState":
		return &Failure{What: fmt.Sprintf("the %s is archived", what), Advice: "restore it to a class that can be read at once"}
	case "PreconditionFailed":
		return &Failure{What: fmt.Sprintf("the %s changed while it was fetched", what), Advice: "start the job again when nobody changes it"}
	case "InvalidRange":
		return &Failure{What: fmt.Sprintf("the %s is shorter than it was", what), temporary: true, damaged: true}
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return bucket.elsewhere(response)
	}
	if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
		return bucket.denied(what)
	}
	failure := &Failure{
		What:      fmt.Sprintf("%s answers %s for the %s: %s", bucket.endpoint, shorten(bucket.redact.text(response.Code), 50), what, shorten(bucket.redact.text(response.Message), 200)),
		Advice:    fmt.Sprintf("check storageUri, and %s in the Secret", bucket.endpointVariable),
		temporary: isTemporaryStatus(response.StatusCode),
	}
	if failure.temporary {
		failure.Advice = "start the job again later"
	}
	return failure
}

func (bucket *bucket) denied(what string) *Failure {
	failure := &Failure{What: fmt.Sprintf("access to the %s at %s is denied", what, bucket.endpoint), cause: errDenied}
	if bucket.anonymous {
		failure.Advice = fmt.Sprintf("no key was given: name a Secret with %s and %s in secretRef", accessKeyVariable, secretKeyVariable)
	} else {
		failure.Advice = fmt.Sprintf("allow the key in %s of the Secret s3:ListBucket on the bucket and s3:GetObject on its objects", accessKeyVariable)
	}
	return failure
}

func (bucket *bucket) elsewhere(response *minio.ErrorResponse) *Failure {
	failure := &Failure{What: fmt.Sprintf("bucket %q is in another region", bucket.container), Advice: fmt.Sprintf("set %s in the Secret to its region", regionVariables[0])}
	if response.Region != "" {
		failure.Advice = fmt.Sprintf("set %s in the Secret to %s", regionVariables[0], shorten(bucket.redact.text(response.Region), 50))
	}
	return failure
}
