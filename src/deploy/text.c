/* Texts: templates, names, files. */
#include <string.h>

#include "deploy/deploy.h"

const char *deploy_file(const struct deploy *d, const char *folder, const char *name)
{
    return arena_printf(d->arena, "%s/%s", folder, name);
}

const char *deploy_string(struct arena *a, const char *text)
{
    struct text t = text_new(a);
    text_string(&t, text);
    return t.at;
}

const char *deploy_fill(struct arena *a, const char *template, const char *const *pairs)
{
    struct text t = text_new(a);
    while (*template) {
        const size_t plain = strcspn(template, "@");
        text_add(&t, template, plain);
        template += plain;
        if (!*template) break;
        bool found = false;
        for (int i = 0; pairs[i] && !found; i += 2) {
            const size_t n = strlen(pairs[i]);
            found = !strncmp(template + 1, pairs[i], n) && template[1 + n] == '@';
            if (!found) continue;
            text_add(&t, pairs[i + 1], strlen(pairs[i + 1]));
            template += n + 2;
        }
        if (!found) text_add(&t, template ++, 1);
    }
    return t.at;
}

sol_status deploy_write(struct deploy *d, const char *folder, const char *name, const char *text)
{
    return file_write(d->ctx, deploy_file(d, folder, name), text, strlen(text));
}

extern const struct {
    const char *name, *text;
} deploy_texts[]; /* made by tools/embed.py; ends with NULL */

const char *deploy_text(const char *name)
{
    for (int i = 0; deploy_texts[i].name; i++)
        if (!strcmp(deploy_texts[i].name, name)) return deploy_texts[i].text;
    return "";
}
