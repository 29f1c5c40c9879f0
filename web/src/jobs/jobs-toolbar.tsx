// SPDX-License-Identifier: Apache-2.0

import { Button, FormSelect, FormSelectOption, SearchInput, Toolbar, ToolbarContent, ToolbarGroup, ToolbarItem } from '@patternfly/react-core';
import type { Row } from '../api/client';
import { statuses } from '../shared/statuses';
import { actions, type Action, type Target } from './actions';
import { hasFilters, noFilters, type Filters } from './filters';

interface Props {
  filters: Filters;
  onFilters: (filters: Filters) => void;
  namespaces: string[];
  chosen: Row[];
  onAction: (action: Action, jobs: Target[]) => void;
}

/** JobsToolbar has the filters, and the actions on the selected jobs. */
export function JobsToolbar({ filters, onFilters, namespaces, chosen, onAction }: Props) {
  const choices: { name: 'namespace' | 'status' | 'kind'; label: string; all: string; values: readonly string[] }[] = [
    { name: 'namespace', label: 'Namespace', all: 'All namespaces', values: namespaces },
    { name: 'status', label: 'Status', all: 'Any status', values: statuses },
    { name: 'kind', label: 'Kind', all: 'Both kinds', values: ['TrainJob', 'MPIJob'] },
  ];
  return (
    <Toolbar aria-label="Filters and actions" inset={{ default: 'insetNone' }}>
      <ToolbarContent>
        <ToolbarGroup variant="filter-group">
          <ToolbarItem>
            <SearchInput
              aria-label="Search by name"
              placeholder="Search by name"
              value={filters.search}
              onChange={(_, search) => onFilters({ ...filters, search })}
              onClear={() => onFilters({ ...filters, search: '' })}
            />
          </ToolbarItem>
          {choices.map(({ name, label, all, values }) => (
            <ToolbarItem key={name}>
              <FormSelect aria-label={label} value={filters[name]} onChange={(_, value) => onFilters({ ...filters, [name]: value })}>
                <FormSelectOption value="" label={all} />
                {[...new Set([...values, ...(filters[name] ? [filters[name]] : [])])].map((value) => (
                  <FormSelectOption key={value} value={value} label={value} />
                ))}
              </FormSelect>
            </ToolbarItem>
          ))}
          {hasFilters(filters) && (
            <ToolbarItem>
              <Button variant="link" onClick={() => onFilters({ ...noFilters, sort: filters.sort, descending: filters.descending })}>
                Clear all filters
              </Button>
            </ToolbarItem>
          )}
        </ToolbarGroup>
        {chosen.length > 0 && (
          <ToolbarGroup variant="action-group" aria-label={`Actions on ${chosen.length} selected jobs`} role="group">
            {actions.map((action) => {
              const fitting = chosen.filter(action.fits);
              return (
                <ToolbarItem key={action.id}>
                  <Button variant={action.id === 'delete' ? 'danger' : 'secondary'} isDisabled={fitting.length === 0} onClick={() => onAction(action, fitting)}>
                    {`${action.name} (${fitting.length})`}
                  </Button>
                </ToolbarItem>
              );
            })}
          </ToolbarGroup>
        )}
      </ToolbarContent>
    </Toolbar>
  );
}
