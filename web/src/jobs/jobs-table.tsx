// SPDX-License-Identifier: Apache-2.0

import { Progress } from '@patternfly/react-core';
import { ActionsColumn, Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, useCallback, useRef, type Dispatch, type SetStateAction } from 'react';
import { Link, useNavigate } from 'react-router';
import type { Row } from '../api/client';
import { keyOf } from '../live/events';
import { Status } from '../shared/status';
import { duration, secondsBetween, useNow } from '../shared/time';
import { actions, clonePath, pathOf, type Action, type Target } from './actions';
import type { Filters, SortColumn } from './filters';

interface Props {
  rows: Row[];
  filters: Filters;
  onFilters: (filters: Filters) => void;
  chosen: ReadonlySet<string>;
  onChosen: Dispatch<SetStateAction<ReadonlySet<string>>>;
  onAction: (action: Action, jobs: Target[]) => void;
}

const rowHeight = 49;

const columns: { name: string; sort?: SortColumn }[] = [
  { name: 'Name', sort: 'name' },
  { name: 'Namespace', sort: 'namespace' },
  { name: 'Status', sort: 'status' },
  { name: 'Progress' },
  { name: 'Kind', sort: 'kind' },
  { name: 'Workers' },
  { name: 'Run time' },
  { name: 'Age', sort: 'creationTime' },
];

/** JobsTable has only those rows in the document that can be seen. */
export function JobsTable({ rows, filters, onFilters, chosen, onChosen, onAction }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  const now = useNow(5000);
  // eslint-disable-next-line react-hooks/incompatible-library -- the virtualizer is used in this component only
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroll.current, estimateSize: () => rowHeight, overscan: 10 });
  const items = virtual.getVirtualItems();
  const above = items[0]?.start ?? 0;
  const below = virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  const active = columns.findIndex((column) => column.sort === filters.sort);
  const allChosen = rows.length > 0 && rows.every((row) => chosen.has(keyOf(row)));
  // Rows are memoized, so what they get must not be new each time.
  const choose = useCallback(
    (row: Row, isChosen: boolean) =>
      onChosen((before) => {
        const next = new Set(before);
        if (isChosen) next.add(keyOf(row));
        else next.delete(keyOf(row));
        return next;
      }),
    [onChosen],
  );

  return (
    <div className="tr-scroll" ref={scroll} tabIndex={0} role="region" aria-label="Table of jobs">
      <Table aria-label="Jobs" variant="compact" isStickyHeader className="tr-table" aria-rowcount={rows.length + 1} gridBreakPoint="">
        <Thead>
          <Tr>
            <Th
              screenReaderText="Select all"
              select={{ isSelected: allChosen, onSelect: (_, isSelected) => onChosen(new Set(isSelected ? rows.map(keyOf) : [])) }}
            />
            {columns.map((column, index) => (
              <Th
                key={column.name}
                modifier="nowrap"
                sort={
                  column.sort && {
                    columnIndex: index,
                    sortBy: { index: active, direction: filters.descending ? 'desc' : 'asc' },
                    onSort: (_, __, direction) => onFilters({ ...filters, sort: column.sort ?? 'name', descending: direction === 'desc' }),
                  }
                }
              >
                {column.name}
              </Th>
            ))}
            <Th screenReaderText="Actions" />
          </Tr>
        </Thead>
        <Tbody>
          {above > 0 && <Spacer height={above} />}
          {items.map((item) => {
            const row = rows[item.index];
            return (
              row && (
                <JobRow key={keyOf(row)} row={row} index={item.index} isChosen={chosen.has(keyOf(row))} now={now} onChoose={choose} onAction={onAction} />
              )
            );
          })}
          {below > 0 && <Spacer height={below} />}
        </Tbody>
      </Table>
    </div>
  );
}

function Spacer({ height }: { height: number }) {
  return (
    <tr className="tr-spacer" aria-hidden>
      <td colSpan={columns.length + 2} style={{ height }} />
    </tr>
  );
}

interface RowProps {
  row: Row;
  index: number;
  isChosen: boolean;
  now: number;
  onChoose: (row: Row, isChosen: boolean) => void;
  onAction: (action: Action, jobs: Target[]) => void;
}

const JobRow = memo(function JobRow({ row, index, isChosen, now, onChoose, onAction }: RowProps) {
  const navigate = useNavigate();
  const progress = row.trainerStatus?.progressPercentage ?? undefined;
  return (
    <Tr aria-rowindex={index + 2}>
      <Td select={{ rowIndex: index, isSelected: isChosen, onSelect: (_, isSelected) => onChoose(row, isSelected) }} />
      <Td dataLabel="Name">
        <Link to={pathOf(row)}>{row.name}</Link>
      </Td>
      <Td dataLabel="Namespace">{row.namespace}</Td>
      <Td dataLabel="Status" title={row.message}>
        <Status status={row.status} />
      </Td>
      <Td dataLabel="Progress">
        {progress === undefined ? '–' : <Progress value={progress} size="sm" measureLocation="outside" aria-label={`Progress of ${row.name}`} />}
      </Td>
      <Td dataLabel="Kind">{row.kind}</Td>
      <Td dataLabel="Workers">{row.readyWorkers || `0/${row.numNodes}`}</Td>
      <Td dataLabel="Run time">{row.startTime ? duration(secondsBetween(row.startTime, row.completionTime ?? now)) : '–'}</Td>
      <Td dataLabel="Age">{duration(secondsBetween(row.creationTime, now))}</Td>
      <Td isActionCell>
        <ActionsColumn
          popperProps={{ appendTo: () => document.body, position: 'right' }}
          items={[
            ...actions.map((action) => ({ title: action.name, isDisabled: !action.fits(row), onClick: () => onAction(action, [row]) })),
            { title: 'Clone', onClick: () => void navigate(clonePath(row)) },
          ]}
        />
      </Td>
    </Tr>
  );
});
