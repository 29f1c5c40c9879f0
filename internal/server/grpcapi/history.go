// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	"google.golang.org/grpc"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// defaultRecords is how many records a list has.
const defaultRecords = 100

// records implements training.HistoryService.
type records struct {
	wire.UnimplementedHistoryServiceServer
	*shared
}

// ListRecords returns the records of a namespace.
func (r *records) ListRecords(ctx context.Context, request *wire.ListRecordsRequest) (*wire.ListRecordsResponse, error) {
	kind, err := kindOf(request.GetKind())
	if err != nil {
		return nil, err
	}
	if err := checkNames(nameField{field: "namespace", value: request.GetNamespace()}); err != nil {
		return nil, err
	}
	limit := int(request.GetLimit())
	if limit == 0 {
		limit = defaultRecords
	}
	if limit < 1 || limit > history.MaxList {
		return nil, apierror.Invalid("limit", "must be from 1 to %d", history.MaxList)
	}
	list, err := r.service.History(ctx, kind, request.GetNamespace(), limit)
	return toMessage(list, err, &wire.ListRecordsResponse{})
}

// GetRecord returns the record of a job.
func (r *records) GetRecord(ctx context.Context, request *wire.GetRecordRequest) (*wire.GetRecordResponse, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	record, err := r.service.Past(ctx, ref)
	message, err := toMessage(record, err, &wire.Record{})
	return &wire.GetRecordResponse{Record: message}, err
}

// GetRecordLogs streams the log of a record.
func (r *records) GetRecordLogs(request *wire.GetRecordLogsRequest, stream grpc.ServerStreamingServer[wire.LogMessage]) error {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return err
	}
	var rank *int
	if request.Rank != nil {
		if request.GetRank() < 0 {
			return apierror.Invalid("rank", "must not be negative")
		}
		rank = new(int(request.GetRank()))
	}
	ctx, stop := context.WithTimeout(stream.Context(), readTimeout)
	defer stop()
	lines, err := r.service.PastLogs(ctx, ref, rank)
	if err != nil {
		return err
	}
	if err := sendHeader(stream); err != nil {
		return err
	}
	for line, err := range lines {
		if err != nil {
			return err
		}
		if err := stream.Send(logMessage(pastLine(line))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func pastLine(line history.Line) joblog.Line {
	sent := joblog.Line{Pod: line.Pod, Role: training.RoleLauncher, Rank: joblog.NoRank, Time: line.Time, Text: line.Text}
	if line.Rank != nil {
		sent.Rank = *line.Rank
	}
	return sent
}

// DeleteRecord deletes a record.
func (r *records) DeleteRecord(ctx context.Context, request *wire.DeleteRecordRequest) (*wire.DeleteRecordResponse, error) {
	ref, err := jobRefOfKind(request)
	if err != nil {
		return nil, err
	}
	recordJob(ctx, ref, false)
	return &wire.DeleteRecordResponse{}, r.service.DeletePast(ctx, ref)
}
