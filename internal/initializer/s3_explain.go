// SPDX-License-Identifier: Apache-2.0

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

// explain explains an error of a request about an object or, without a key, about the
// bucket.
func (b *bucket) explain(ctx context.Context, err error, key string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var response minio.ErrorResponse
	var syntax *xml.SyntaxError
	answered := errors.As(err, &response)
	if answered && response.StatusCode == 0 || errors.As(err, &syntax) {
		return &Failure{
			What:   fmt.Sprintf("%s does not respond like an S3 server", b.endpoint),
			Advice: fmt.Sprintf("check %s in the Secret, and whether a proxy or login page answers instead", b.endpointVariable),
			cause:  err,
		}
	}
	if !answered {
		return unreachable(err, b.endpoint, b.endpointVariable, s3BundleVariable)
	}
	failure := b.explainResponse(&response, key)
	if failure.cause == nil {
		failure.cause = err
	}
	return failure
}

// explainResponse explains an error response of S3.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
func (b *bucket) explainResponse(response *minio.ErrorResponse, key string) *Failure {
	what := fmt.Sprintf("bucket %q", b.container)
	if key != "" {
		what = fmt.Sprintf("object %q in bucket %q", key, b.container)
	}
	switch response.Code {
	case "NoSuchBucket":
		return &Failure{
			What:   fmt.Sprintf("bucket %q does not exist at %s", b.container, b.endpoint),
			Advice: fmt.Sprintf("check the name in storageUri, and %s in the Secret", b.endpointVariable),
		}
	case "NoSuchKey":
		return &Failure{What: fmt.Sprintf("the %s no longer exists", what), Advice: "restart the job when nothing changes the bucket"}
	case "InvalidAccessKeyId":
		return &Failure{
			What:   fmt.Sprintf("%s does not know the access key", b.endpoint),
			Advice: fmt.Sprintf("check %s in the Secret, and %s", accessKeyVariable, b.endpointVariable),
		}
	case "SignatureDoesNotMatch":
		return &Failure{What: fmt.Sprintf("the secret key does not belong to the access key at %s", b.endpoint), Advice: fmt.Sprintf("check %s in the Secret", secretKeyVariable)}
	case "ExpiredToken", "InvalidToken", "TokenRefreshRequired":
		return &Failure{What: fmt.Sprintf("%s rejects the session token: it is invalid or expired", b.endpoint), Advice: fmt.Sprintf("renew %s, %s and %s in the Secret", accessKeyVariable, secretKeyVariable, sessionTokenVariable)}
	case "RequestTimeTooSkewed":
		return &Failure{What: fmt.Sprintf("the clocks of this node and of %s differ too much", b.endpoint), Advice: "ask the cluster administrator to correct the node's clock"}
	case "InvalidObjectState":
		return &Failure{What: fmt.Sprintf("the %s is archived", what), Advice: "restore it to a storage class that can be read immediately"}
	case "PreconditionFailed":
		return &Failure{What: fmt.Sprintf("the %s changed while it was fetched", what), Advice: "restart the job when nothing changes it"}
	case "InvalidRange":
		return &Failure{What: fmt.Sprintf("the %s is shorter than it was", what), temporary: true, corrupt: true}
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return b.otherRegion(response)
	}
	if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
		return b.denied(what)
	}
	failure := &Failure{
		What:      fmt.Sprintf("%s responds with %s for the %s: %s", b.endpoint, shorten(b.redact.text(response.Code), 50), what, shorten(b.redact.text(response.Message), 200)),
		Advice:    fmt.Sprintf("check storageUri, and %s in the Secret", b.endpointVariable),
		temporary: isTemporaryStatus(response.StatusCode),
	}
	if failure.temporary {
		failure.Advice = "restart the job later"
	}
	return failure
}

func (b *bucket) denied(what string) *Failure {
	failure := &Failure{What: fmt.Sprintf("access to the %s at %s is denied", what, b.endpoint), cause: errDenied}
	if b.anonymous {
		failure.Advice = fmt.Sprintf("no access key is set: name a Secret with %s and %s in secretRef", accessKeyVariable, secretKeyVariable)
	} else {
		failure.Advice = fmt.Sprintf("grant the key in %s of the Secret s3:ListBucket on the bucket and s3:GetObject on its objects", accessKeyVariable)
	}
	return failure
}

func (b *bucket) otherRegion(response *minio.ErrorResponse) *Failure {
	failure := &Failure{What: fmt.Sprintf("bucket %q is in another region", b.container), Advice: fmt.Sprintf("set %s in the Secret to its region", regionVariables[0])}
	if response.Region != "" {
		failure.Advice = fmt.Sprintf("set %s in the Secret to %s", regionVariables[0], shorten(b.redact.text(response.Region), 50))
	}
	return failure
}
