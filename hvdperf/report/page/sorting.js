'use strict';

/* The board by any of its columns: up, down, and as it was. */
if (document.querySelector('.board')) {
    const ORDER = ['FAIL', 'INVALID', 'NOT RUN', 'INCONCLUSIVE', 'PASS', 'INFO'];
    const NEXT = {none: 'ascending', ascending: 'descending', descending: 'none'};
    const text = new Intl.Collator(undefined, {numeric: true});
    const table = document.querySelector('.board table');
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const asItWas = [...body.rows];
    const values = new Map();

    function rank(key, value) {
        return key === 'verdict' ? ORDER.indexOf(value) : value;
    }

    function compare(one, other) {
        if (typeof one === 'number' && typeof other === 'number') {
            return one - other;
        }
        return text.compare(one, other);
    }

    /* Whatever the direction, rows without a value come last. */
    function sort(key, direction) {
        const sign = direction === 'descending' ? -1 : 1;
        const order = [...asItWas];
        if (direction !== 'none') {
            order.sort((a, b) => {
                const [one, other] = [values.get(a)[key], values.get(b)[key]];
                if (one === null || other === null) {
                    return (one === null) - (other === null);
                }
                return sign * compare(rank(key, one), rank(key, other));
            });
        }
        body.append(...order);
        heads.forEach(head => head.setAttribute('aria-sort', head.dataset.key === key ? direction : 'none'));
    }

    page.sorting = {
        start() {
            const keys = heads.map(head => head.dataset.key);
            asItWas.forEach(row => values.set(row, page.rowOf(row, keys)));
            for (const head of heads) {
                head.querySelector('button').addEventListener('click', () => {
                    const key = head.dataset.key;
                    const direction = NEXT[head.getAttribute('aria-sort')];
                    sort(key, direction);
                    const is = direction !== 'none';
                    const name = head.querySelector('.name').textContent;
                    page.say(is ? `Sorted by ${name}, ${direction}` : 'In the order of the session');
                });
            }
        },
    };
}
