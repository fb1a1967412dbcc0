/** Lists of which the server may end a page early, because it has looked at so many records for it. */

export interface Page<Each> {
  readonly items: readonly Each[];
  readonly cursor: string;
}

/** How many pages are asked for until one is full; a server looks at thousands of records for each. */
export const LOOKS = 20;

/** Return so many items from a cursor on, from as many pages as it takes, up to a bound. */
export async function gathered<Each>(
  read: (cursor: string) => Promise<Page<Each>>,
  cursor: string,
  wanted: number,
  looks = LOOKS,
): Promise<Page<Each>> {
  const items: Each[] = [];
  let next = cursor;
  for (let look = 0; look < looks; look++) {
    const page = await read(next);
    items.push(...page.items);
    next = page.cursor;
    if (!next || items.length >= wanted) break;
  }
  return { items, cursor: next };
}
