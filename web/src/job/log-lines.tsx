// SPDX-License-Identifier: Apache-2.0

import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import type { LogLine } from '../api/client';
import { parts, sourceOf } from './log-buffer';
import type { ShownLine } from './log-fold';

interface Props {
  lines: (LogLine | ShownLine)[];
  search: string;
  /** current is the line to scroll to; -1 for none. */
  current: number;
  isWrapped: boolean;
  isFollowed: boolean;
  onScrollUp: () => void;
}

const lineHeight = 20;

/**
 * LogLines has only those lines in the document that can be seen, as text. PatternFly's log
 * viewer writes lines as HTML, which the page's policy forbids.
 */
export function LogLines({ lines, search, current, isWrapped, isFollowed, onScrollUp }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- the virtualizer is used in this component only
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => scroll.current, estimateSize: () => lineHeight, overscan: 30 });
  useEffect(() => virtual.measure(), [virtual, isWrapped]);
  useEffect(() => {
    if (isFollowed && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: 'end' });
  }, [virtual, isFollowed, lines.length]);
  useEffect(() => {
    if (current >= 0) virtual.scrollToIndex(current, { align: 'center' });
  }, [virtual, current]);

  return (
    <div
      ref={scroll}
      className={`tr-log${isWrapped ? ' tr-log--wrap' : ''}`}
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Log lines"
      onWheel={(event) => event.deltaY < 0 && onScrollUp()}
      onKeyDown={(event) => ['ArrowUp', 'PageUp', 'Home'].includes(event.key) && onScrollUp()}
    >
      <div className="tr-log__lines" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index];
          return (
            line && (
              <div
                key={item.index}
                ref={isWrapped ? virtual.measureElement : undefined}
                data-index={item.index}
                className={`tr-log__line${item.index === current ? ' tr-log__line--current' : ''}`}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <span className="tr-log__source" title={line.timestamp}>
                  {'source' in line ? line.source : sourceOf(line)}
                </span>
                <span>{parts(line.message, search).map((part, index) => (part.isMatch ? <mark key={index}>{part.text}</mark> : part.text))}</span>
              </div>
            )
          );
        })}
      </div>
    </div>
  );
}
