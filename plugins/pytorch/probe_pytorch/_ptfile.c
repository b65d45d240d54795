/* Reading of small .pt files in the form that torch.save writes; ptfile.py reads all others, and names what is wrong.
 *
 * read_small(path, limit) returns the content of a regular file of up to `limit` bytes, and where in it the only
 * storage is: (content, pickle, key, start, size). The result is None for any file that is larger, cannot be read, or
 * is not a zip file of the simple form with one storage of little-endian elements.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { END = 22, LARGE_END = 76, ENTRY = 46, LOCAL = 30, NEWEST_VERSION = 63, LONGEST_PICKLE = 4096 };

typedef struct {
    const unsigned char *data;
    size_t size;
} Bytes;

static uint16_t u16(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

static uint32_t u32(const unsigned char *at) { return (uint32_t)u16(at) | (uint32_t)u16(at + 2) << 16; }

static uint64_t u64(const unsigned char *at) { return (uint64_t)u32(at) | (uint64_t)u32(at + 4) << 32; }

static int ends_with(Bytes text, const char *end) {
    size_t size = strlen(end);
    return text.size >= size && !memcmp(text.data + text.size - size, end, size);
}

/* The directory of a zip file: its entries and their number. */
typedef struct {
    Bytes entries;
    uint64_t count;
} Directory;

/* Find the directory of a file without comment; return 0 for any other file. */
static int find_directory(Bytes file, Directory *found) {
    if (file.size < END) return 0;
    size_t at = file.size - END;
    const unsigned char *end = file.data + at;
    if (memcmp(end, "PK\5\6", 4) || u16(end + 20)) return 0;
    uint64_t disk = u16(end + 4), first_disk = u16(end + 6), here = u16(end + 8), count = u16(end + 10);
    uint64_t length = u32(end + 12), start = u32(end + 16);
    if (at >= LARGE_END && !memcmp(end - LARGE_END, "PK\6\6", 4)) { /* zip64, with its locator */
        at -= LARGE_END;
        end = file.data + at;
        disk = u32(end + 16), first_disk = u32(end + 20), here = u64(end + 24), count = u64(end + 32);
        length = u64(end + 40), start = u64(end + 48);
        if (memcmp(end + 56, "PK\6\7", 4) || u32(end + 60) || u64(end + 64) != at || u32(end + 72) > 1) return 0;
    } else if (at >= 20 && !memcmp(end - 20, "PK\6\7", 4)) {
        return 0;
    }
    if (disk || first_disk || here != count || start > at || length != at - start) return 0;
    found->entries = (Bytes){file.data + start, (size_t)length};
    found->count = count;
    return 1;
}

/* A member of a zip file: its name, and its bytes in the file. */
typedef struct {
    Bytes name, content;
} Member;

/* Read the entry at `at` and move on; return 0 unless it is a stored member within the file. */
static int read_entry(Bytes file, Bytes entries, size_t *at, Member *member) {
    if (entries.size - *at < ENTRY) return 0;
    const unsigned char *entry = entries.data + *at;
    uint32_t packed = u32(entry + 20), size = u32(entry + 24), header = u32(entry + 42);
    size_t name = u16(entry + 28), note = u16(entry + 32);
    if (memcmp(entry, "PK\1\2", 4) || entry[6] > NEWEST_VERSION || u16(entry + 30)) return 0;
    if (u16(entry + 8) & 1 || u16(entry + 10) || packed != size || size == UINT32_MAX) return 0;
    if (entries.size - *at - ENTRY < name + note) return 0;
    for (size_t i = 0; i < name; i++)
        if (!entry[ENTRY + i] || entry[ENTRY + i] > 127) return 0;
    *at += ENTRY + name + note;
    if (header > file.size || file.size - header < LOCAL || memcmp(file.data + header, "PK\3\4", 4)) return 0;
    size_t start = (size_t)header + LOCAL + u16(file.data + header + 26) + u16(file.data + header + 28);
    if (start > file.size || file.size - start < size) return 0;
    member->name = (Bytes){entry + ENTRY, name};
    member->content = (Bytes){file.data + start, size};
    return 1;
}

/* The description of a tensor, and its only storage. */
typedef struct {
    Bytes pickle, key, storage;
} Parts;

/* Find the parts of a file; return 0 if it has not exactly these. */
static int find_parts(Bytes file, Parts *parts) {
    Directory directory;
    Member member;
    size_t at = 0, root = 0;
    int pickles = 0, storages = 0, orders = 0;
    if (!find_directory(file, &directory)) return 0;
    const unsigned char *prefix = NULL;
    for (int pass = 0; pass < 2; pass++, at = 0) { /* the root is known after the first */
        for (uint64_t i = 0; i < directory.count; i++) {
            if (!read_entry(file, directory.entries, &at, &member)) return 0;
            Bytes name = member.name;
            if (!pass) {
                if (!ends_with(name, "/data.pkl")) continue;
                if (pickles++ || member.content.size > LONGEST_PICKLE) return 0;
                prefix = name.data, root = name.size - 8;
                parts->pickle = member.content;
            } else if (name.size > root && !memcmp(name.data, prefix, root)) {
                Bytes rest = {name.data + root, name.size - root};
                if (rest.size > 5 && !memcmp(rest.data, "data/", 5)) {
                    if (storages++) return 0;
                    parts->key = (Bytes){rest.data + 5, rest.size - 5};
                    parts->storage = member.content;
                } else if (rest.size == 9 && !memcmp(rest.data, "byteorder", 9)) {
                    if (orders++ || member.content.size != 6 || memcmp(member.content.data, "little", 6)) return 0;
                }
            }
        }
        if (at != directory.entries.size || pickles != 1) return 0;
    }
    return storages == 1;
}

/* Open a regular file, not through a link, and return its descriptor and size; -1 if there is none of this kind. */
static int open_regular(const char *path, Py_ssize_t limit, Py_ssize_t *size) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return -1;
    if (!fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0 && status.st_size <= limit) {
        *size = (Py_ssize_t)status.st_size;
        return file;
    }
    close(file);
    return -1;
}

static PyObject *read_small(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path;
    Py_ssize_t limit, size = 0, got = -1;
    if (!PyArg_ParseTuple(args, "O&n:read_small", PyUnicode_FSConverter, &path, &limit)) return NULL;
    int file;
    Py_BEGIN_ALLOW_THREADS
    file = open_regular(PyBytes_AS_STRING(path), limit, &size);
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    if (file < 0) Py_RETURN_NONE;
    PyObject *content = PyBytes_FromStringAndSize(NULL, size);
    if (content != NULL) {
        Py_BEGIN_ALLOW_THREADS
        got = (Py_ssize_t)read(file, PyBytes_AS_STRING(content), (size_t)size);
        Py_END_ALLOW_THREADS
    }
    close(file);
    if (content == NULL) return NULL;
    Parts parts;
    Bytes all = {(const unsigned char *)PyBytes_AS_STRING(content), (size_t)size};
    if (got != size || !find_parts(all, &parts)) {
        Py_DECREF(content);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(Ny#s#nn)", content, (const char *)parts.pickle.data, (Py_ssize_t)parts.pickle.size,
                         (const char *)parts.key.data, (Py_ssize_t)parts.key.size,
                         (Py_ssize_t)(parts.storage.data - all.data), (Py_ssize_t)parts.storage.size);
}

static PyMethodDef methods[] = {
    {"read_small", read_small, METH_VARARGS,
     "read_small(path, limit) -> (content, pickle, key of the storage, its start, its size), or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_ptfile", "Small .pt files.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ptfile(void) { return PyModule_Create(&definition); }
