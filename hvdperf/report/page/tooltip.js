'use strict';

/* What Vega tells of the mark that is pointed at, as text and never as markup. */
{
    const AWAY = 12;
    let tip = null;

    function element(name, text) {
        const made = document.createElement(name);
        made.textContent = text;
        return made;
    }

    function content(value) {
        if (typeof value !== 'object') {
            return element('span', String(value));
        }
        const list = document.createElement('dl');
        for (const [name, text] of Object.entries(value)) {
            list.append(element('dt', name), element('dd', String(text)));
        }
        return list;
    }

    page.tooltip = (_, event, __, value) => {
        tip?.remove();
        tip = null;
        if (value === null || value === undefined || value === '') {
            return;
        }
        tip = document.createElement('div');
        tip.className = 'tip';
        tip.append(content(value));
        document.body.append(tip);
        const {width, height} = tip.getBoundingClientRect();
        const left = Math.min(event.clientX + AWAY, innerWidth - width - AWAY);
        const below = event.clientY + AWAY;
        const top = below + height > innerHeight ? event.clientY - height - AWAY : below;
        tip.style.left = `${Math.max(0, left)}px`;
        tip.style.top = `${Math.max(0, top)}px`;
    };
}
