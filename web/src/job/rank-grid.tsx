// SPDX-License-Identifier: Apache-2.0

import { memo, useRef, useState, type KeyboardEvent, type MouseEvent } from 'react';
import type { Schemas } from '../api/client';
import { byHost, isOdd, labelOf, letterOf, leveled, type Lens, type RankReport } from './rank-levels';

interface Props {
  report: RankReport;
  lens: Lens;
  odd: Schemas['OddRank'][] | undefined;
  /** selected is the id of the rank whose details are open; "" for none. */
  selected: string;
  onSelect: (id: string) => void;
}

/**
 * RankGrid has one cell for each rank, grouped by host. One cell is in the order of tabs;
 * arrow keys move between cells, Enter opens the details of one.
 */
export function RankGrid({ report, lens, odd, selected, onSelect }: Props) {
  const [active, setActive] = useState('');
  const list = useRef<HTMLDivElement>(null);
  const hosts = byHost(report.ranks);
  const { of } = leveled(report, lens);
  const first = hosts[0]?.[1][0]?.id;
  const isKnown = report.ranks.some((view) => view.id === active);

  const select = (event: MouseEvent | KeyboardEvent) => {
    const id = cellOf(event.target)?.dataset.id;
    if (id) onSelect(id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const cell = cellOf(event.target);
    if (!cell || !list.current) return;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      return select(event);
    }
    if (event.key === 'Escape') return onSelect('');
    const cells = [...list.current.querySelectorAll<HTMLElement>('[data-id]')];
    const next = cells[nextCell(event.key, cells.indexOf(cell), cells.length, (index) => (cells[index] as HTMLElement).getBoundingClientRect())];
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    next.focus();
    // Details that are open show the rank that the user moves to.
    if (selected && next.dataset.id) onSelect(next.dataset.id);
  };

  return (
    <div ref={list} className="tr-hosts" role="listbox" aria-label="Ranks" onClick={select} onKeyDown={onKeyDown} onFocus={(event) => setActive(cellOf(event.target)?.dataset.id ?? '')}>
      {hosts.map(([host, ranks]) => (
        <div key={host} className="tr-host" role="group" aria-label={`Host ${host}`}>
          <div className="tr-host__name" title={host} aria-hidden>
            {host}
          </div>
          <div className="tr-host__ranks">
            {ranks.map((view) => {
              const level = of(view);
              const differs = isOdd(view.rank, odd);
              return (
                <Cell
                  key={view.id}
                  id={view.id}
                  rank={view.rank.rank}
                  letter={letterOf(level, differs)}
                  color={level.color}
                  label={labelOf(view, lens, level, report.reportedTime, differs)}
                  isOdd={differs}
                  isSelected={view.id === selected}
                  isTabStop={isKnown ? view.id === active : view.id === first}
                />
              );
            })}
          </div>
        </div>
      ))}
    </div>
  );
}

const cellOf = (target: EventTarget) => (target as Element).closest<HTMLElement>('[data-id]');

interface CellProps {
  id: string;
  rank: number;
  letter: string;
  color: string;
  label: string;
  isOdd: boolean;
  isSelected: boolean;
  isTabStop: boolean;
}

/** Cell has only plain properties, so that a report renders no more cells than it changes. */
const Cell = memo(function Cell({ id, rank, letter, color, label, isOdd, isSelected, isTabStop }: CellProps) {
  return (
    <div
      className={`tr-rank tr-rank--${color}${isOdd ? ' tr-rank--odd' : ''}`}
      role="option"
      data-id={id}
      aria-label={label}
      aria-selected={isSelected}
      title={label}
      tabIndex={isTabStop ? 0 : -1}
    >
      <span>{rank}</span> <strong>{letter}</strong>
    </div>
  );
});

/** nextCell is the index of the cell that a key moves to; up and down go by where cells are on the screen. */
export function nextCell(key: string, index: number, count: number, place: (index: number) => Pick<DOMRect, 'top' | 'left'>): number {
  switch (key) {
    case 'ArrowRight':
      return Math.min(index + 1, count - 1);
    case 'ArrowLeft':
      return Math.max(index - 1, 0);
    case 'Home':
      return 0;
    case 'End':
      return count - 1;
    case 'ArrowDown':
    case 'ArrowUp': {
      const from = place(index);
      const direction = key === 'ArrowDown' ? 1 : -1;
      let [best, distance] = [index, Infinity];
      for (let other = 0; other < count; other++) {
        const { top, left } = place(other);
        // Rows are nearer than columns: of the next row, the cell that is closest.
        const rows = (top - from.top) * direction;
        const far = rows * 1000 + Math.abs(left - from.left);
        if (rows > 1 && far < distance) [best, distance] = [other, far];
      }
      return best;
    }
  }
  return -1;
}
