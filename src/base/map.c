/* A hash map with open addressing, in an arena. Strings and numbers may be mixed: they are different keys. */
#include "base/base.h"

#include <string.h>

struct entry {
    uint64_t key;     /* the number, or the string's hash */
    const char *text; /* NULL: a number */
    void *value;
    bool used;
};
struct map {
    struct arena *arena;
    struct entry *at;
    size_t room, n; /* room is a power of two */
};

struct map *map_create(struct arena *a)
{
    struct map *m = NEW(a, struct map);
    m->arena = a;
    m->room = 16;
    m->at = NEW_ARRAY(a, struct entry, m->room);
    return m;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9fb21c651e98df25u;
    x ^= x >> 29;
    return x;
}

static uint64_t text_key(const char *text)
{
    uint64_t h = 0x51ed270b0a1f39c5u;
    for (; *text; text++) h = mix(h + (unsigned char)*text + 1);
    return h;
}

/* The slot of the key, or the slot for inserting it. */
static struct entry *find(const struct map *m, uint64_t key, const char *text)
{
    for (size_t i = mix(key) & (m->room - 1);; i = (i + 1) & (m->room - 1)) {
        struct entry *e = &m->at[i];
        if (!e->used) return e;
        if (e->key == key && (text ? e->text && !strcmp(e->text, text) : !e->text)) return e;
    }
}

static void grow(struct map *m)
{
    struct map bigger = {.arena = m->arena, .room = m->room * 2, .n = m->n};
    bigger.at = NEW_ARRAY(m->arena, struct entry, bigger.room);
    for (size_t i = 0; i < m->room; i++)
        if (m->at[i].used) *find(&bigger, m->at[i].key, m->at[i].text) = m->at[i];
    *m = bigger;
}

static void set(struct map *m, uint64_t key, const char *text, void *value)
{
    struct entry *e = find(m, key, text);
    if (!e->used) {
        if (m->n * 3 >= m->room * 2) {
            grow(m);
            e = find(m, key, text);
        }
        *e = (struct entry){.key = key, .text = arena_strdup(m->arena, text), .used = true};
        m->n++;
    }
    e->value = value;
}

void map_set(struct map *m, const char *key, void *value)
{
    set(m, text_key(key), key, value);
}

void *map_get(const struct map *m, const char *key)
{
    return find(m, text_key(key), key)->value;
}

void map_set_int(struct map *m, uint64_t key, void *value)
{
    set(m, key, NULL, value);
}

void *map_get_int(const struct map *m, uint64_t key)
{
    return find(m, key, NULL)->value;
}
