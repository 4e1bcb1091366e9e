'use strict';

/* Commands can be copied. A page from a file may be refused the clipboard; then it is selected. */
for (const button of document.querySelectorAll('.command button')) {
    const text = button.parentElement.querySelector('code');
    const name = button.textContent;
    button.hidden = false;
    button.addEventListener('click', async () => {
        try {
            await navigator.clipboard.writeText(text.textContent);
            button.textContent = 'Copied';
        } catch {
            getSelection().selectAllChildren(text);
            button.textContent = document.execCommand('copy') ? 'Copied' : 'Selected';
        }
        setTimeout(() => { button.textContent = name; }, 2000);
    });
}

/* The newest nights are seen first. */
document.querySelectorAll('.calendar').forEach(each => { each.scrollLeft = each.scrollWidth; });

/* Every night of a plot can be read, and leads to its session: by mouse, touch and keyboard. */
{
    const SVG = 'http://www.w3.org/2000/svg';
    const data = document.getElementById('nights');
    const nights = data ? JSON.parse(data.textContent) : [];
    const STEPS = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 7, PageDown: -7};

    function start(plot) {
        const area = plot.querySelector('.area');
        const drawing = area.querySelector('svg');
        const title = plot.parentElement.querySelector('h3').textContent;
        const figures = plot.dataset.figures.split(' ');
        const places = [...figures.keys()].filter(place => figures[place] !== '');
        const cursor = document.createElementNS(SVG, 'path');
        const read = document.createElement('p');
        let at = places.length - 1;
        let isRead = false;

        cursor.setAttribute('class', 'cursor');
        read.className = 'read';
        read.hidden = true;
        plot.append(read);
        const attributes = {
            'role': 'slider', 'tabindex': 0, 'aria-label': `${title}, by night`,
            'aria-valuemin': 1, 'aria-valuemax': places.length,
        };
        Object.entries(attributes).forEach(([key, value]) => area.setAttribute(key, value));
        drawing.removeAttribute('role');
        drawing.removeAttribute('aria-label');
        drawing.setAttribute('aria-hidden', 'true');
        name();

        /* Names the night for the slider, and returns what was measured. */
        function name() {
            const [night, verdict] = nights[places[at]];
            const told = `${figures[places[at]]}, night ${verdict}`;
            area.setAttribute('aria-valuenow', at + 1);
            area.setAttribute('aria-valuetext', `${night}: ${told}`);
            return told;
        }

        function choose(place) {
            at = Math.max(0, Math.min(places.length - 1, place));
            const [night, , session] = nights[places[at]];
            const link = document.createElement(session ? 'a' : 'span');
            link.textContent = night;
            if (session) {
                link.href = session;
            }
            read.replaceChildren(link, `: ${name()}`);
            read.hidden = false;
            isRead = true;
            cursor.setAttribute('d', `M${places[at]} 0v120`);
            drawing.firstElementChild.append(cursor);
        }

        function leave() {
            read.hidden = true;
            isRead = false;
            cursor.remove();
        }

        function open() {
            const [, , session] = nights[places[at]];
            if (session) {
                location.assign(session);
            }
        }

        /* The night with a figure that is nearest to the pointer. */
        function nearest(event) {
            const box = area.getBoundingClientRect();
            const place = (event.clientX - box.left) / box.width * (nights.length - 1);
            return places.reduce(
                (best, each, i) => Math.abs(each - place) < Math.abs(places[best] - place) ? i : best, 0
            );
        }

        area.addEventListener('pointermove', event => choose(nearest(event)));
        plot.addEventListener('pointerleave', event => {
            if (event.pointerType === 'mouse' && !plot.contains(document.activeElement)) {
                leave();
            }
        });
        // A finger reads first, and opens by the link.
        area.addEventListener('click', event => {
            choose(nearest(event));
            if (event.pointerType !== 'touch') {
                open();
            }
        });
        area.addEventListener('focus', () => {
            if (!isRead) {
                choose(at);
            }
        });
        plot.addEventListener('focusout', event => {
            if (!plot.contains(event.relatedTarget)) {
                leave();
            }
        });
        area.addEventListener('keydown', event => {
            const places_ = {Home: 0, End: places.length - 1};
            if (event.key === 'Enter') {
                open();
            } else if (event.key === 'Escape') {
                leave();
            } else if (event.key in STEPS) {
                choose(at + STEPS[event.key]);
            } else if (event.key in places_) {
                choose(places_[event.key]);
            } else {
                return;
            }
            event.preventDefault();
        });
    }

    document.querySelectorAll('.plot[data-figures]').forEach(start);
    document.querySelectorAll('.keys').forEach(each => { each.hidden = false; });
}
