package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/trireme-mpi/trireme/internal/problem"
)

// connection is one client.
type connection struct {
	sink    sink
	options Options
}

// tell sends messages until there are no more.
func (connection *connection) tell(messages iter.Seq2[Message, error]) error {
	for message, err := range messages {
		if err == nil {
			err = connection.sink.send(message)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep shows the client that the connection stands, and looks from time to time
// whether it may. It returns why it does not any more, or nil with the context.
func (connection *connection) keep(ctx context.Context) error {
	heartbeat := time.NewTicker(connection.options.Heartbeat)
	defer heartbeat.Stop()
	recheck := time.NewTicker(connection.options.Recheck)
	defer recheck.Stop()
	for {
		var err error
		select {
		case now := <-heartbeat.C:
			err = connection.sink.aside(heartbeatMessage(now))
		case <-recheck.C:
			err = connection.recheck(ctx)
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// recheck is nil unless the client's credentials are known to hold no longer: that
// nobody can tell right now is no reason to cut everybody off.
func (connection *connection) recheck(ctx context.Context) error {
	if connection.options.StillValid == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connection.options.Recheck)
	defer cancel()
	err := connection.options.StillValid(ctx)
	if err == nil {
		return nil
	}
	if refused := problem.From(err); refused.Code == http.StatusUnauthorized || refused.Code == http.StatusForbidden {
		return refused
	}
	return nil
}

func heartbeatMessage(now time.Time) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"HEARTBEAT","timestamp":%q}`, now.UTC().Format(time.RFC3339Nano))
}

// errorMessage is the last message of a stream that could not go on: an error as
// everywhere, and its type.
func errorMessage(failed *problem.Error) json.RawMessage {
	encoded, err := json.Marshal(failed)
	if err != nil {
		panic(fmt.Sprintf("an error cannot be written as JSON: %v", err))
	}
	return append([]byte(`{"type":"ERROR",`), encoded[1:]...)
}
