/* Walks over frames, which Python code does as well but five times as slowly.
 *
 * find_stack(frame, stacks, add) returns the stack from `frame` outwards: `stacks` maps the places of its frames, as
 * bytes, to it. If it is not there, add(frame) makes it.
 *
 * call_from(frame, function, sites, add, depth) returns `function` bound to functions that imitate `frame` and, as
 * long as these are in torch, up to `depth` frames in all: see callers.py. `sites` maps the id of a code object and
 * the position in it to a tuple (code, code of the imitation, True for torch); add(frame) makes a missing one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>

/* Return the position of the current instruction of a frame; -2 with an exception. */
static int position_in(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    PyObject *value = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long position = value == NULL ? -2 : PyLong_AsLong(value);
    Py_XDECREF(value);
    return (int)position;
#endif
}

/* Return a new reference to the global variables of a frame; NULL with an exception. */
static PyObject *globals_of(PyFrameObject *frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetGlobals(frame);
#else
    return PyObject_GetAttrString((PyObject *)frame, "f_globals");
#endif
}

/* The place of a frame: the address of its code object, and its position in it. */
typedef struct {
    uint64_t code, position;
} Place;

/* Store the places of all frames from `frame` outwards as bytes; NULL with an exception. */
static PyObject *places_from(PyFrameObject *frame) {
    Py_ssize_t room = 64, count = 0;
    PyObject *places = PyBytes_FromStringAndSize(NULL, room * (Py_ssize_t)sizeof(Place));
    Py_INCREF(frame);
    while (places != NULL && frame != NULL) {
        if (count == room) {
            room *= 2;
            if (_PyBytes_Resize(&places, room * (Py_ssize_t)sizeof(Place)) < 0) break;
        }
        PyCodeObject *code = PyFrame_GetCode(frame);
        ((Place *)PyBytes_AS_STRING(places))[count].code = (uint64_t)(uintptr_t)code;
        Py_DECREF(code); /* the frame keeps it alive */
        int position = position_in(frame);
        if (position == -2) {
            Py_CLEAR(places);
            break;
        }
        ((Place *)PyBytes_AS_STRING(places))[count++].position = (uint64_t)(int64_t)position;
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    if (places != NULL) _PyBytes_Resize(&places, count * (Py_ssize_t)sizeof(Place));
    return places;
}

static PyObject *find_stack(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 3 || !PyFrame_Check(arguments[0]) || !PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a frame, a dict and a function");
        return NULL;
    }
    PyObject *places = places_from((PyFrameObject *)arguments[0]);
    if (places == NULL) return NULL;
    PyObject *stack = PyDict_GetItemWithError(arguments[1], places);
    Py_XINCREF(stack);
    if (stack == NULL && !PyErr_Occurred()) {
        stack = PyObject_CallOneArg(arguments[2], arguments[0]);
        if (stack != NULL && PyDict_SetItem(arguments[1], places, stack) < 0) Py_CLEAR(stack);
    }
    Py_DECREF(places);
    return stack;
}

/* Return a new reference to the entry of a frame in `sites`; NULL with an exception. */
static PyObject *site_of(PyFrameObject *frame, PyObject *sites, PyObject *add) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *number = PyLong_FromVoidPtr(code);
    Py_DECREF(code);
    PyObject *position = PyLong_FromLong(position_in(frame));
    PyObject *key = number && position && !PyErr_Occurred() ? PyTuple_Pack(2, number, position) : NULL;
    Py_XDECREF(number);
    Py_XDECREF(position);
    if (key == NULL) return NULL;
    PyObject *site = PyDict_GetItemWithError(sites, key);
    Py_DECREF(key);
    if (site != NULL) return Py_NewRef(site);
    site = PyErr_Occurred() ? NULL : PyObject_CallOneArg(add, (PyObject *)frame);
    if (site != NULL && (!PyTuple_Check(site) || PyTuple_GET_SIZE(site) != 3 || !PyCode_Check(PyTuple_GET_ITEM(site, 1)))) {
        PyErr_SetString(PyExc_TypeError, "a site has a code object, the code of an imitation and a truth value");
        Py_CLEAR(site);
    }
    return site;
}

/* Bind `function` to a function that imitates a frame; NULL with an exception. */
static PyObject *imitate(PyFrameObject *frame, PyObject *stand_in, PyObject *function) {
    PyObject *globals = globals_of(frame);
    if (globals == NULL) return NULL;
    PyObject *caller = PyFunction_New(stand_in, globals);
    Py_DECREF(globals);
    if (caller == NULL) return NULL;
    PyObject *bound = PyMethod_New(caller, function);
    Py_DECREF(caller);
    return bound;
}

static PyObject *call_from(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 5 || !PyFrame_Check(arguments[0]) || !PyDict_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "expected a frame, a function, a dict, a function and a number");
        return NULL;
    }
    long depth = PyLong_AsLong(arguments[4]);
    if (depth == -1 && PyErr_Occurred()) return NULL;
    PyFrameObject *frame = (PyFrameObject *)Py_NewRef(arguments[0]);
    PyObject *function = Py_NewRef(arguments[1]);
    for (int goes_on = 1; goes_on && depth > 0 && frame != NULL; depth--) {
        PyObject *site = site_of(frame, arguments[2], arguments[3]);
        PyObject *bound = site ? imitate(frame, PyTuple_GET_ITEM(site, 1), function) : NULL;
        goes_on = bound != NULL && PyTuple_GET_ITEM(site, 2) == Py_True;
        Py_XDECREF(site);
        Py_SETREF(function, bound);
        PyFrameObject *back = goes_on ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return function;
}

static PyMethodDef methods[] = {
    {"find_stack", (PyCFunction)(void (*)(void))find_stack, METH_FASTCALL,
     "find_stack(frame, stacks, add) -> the stack from a frame outwards"},
    {"call_from", (PyCFunction)(void (*)(void))call_from, METH_FASTCALL,
     "call_from(frame, function, sites, add, depth) -> the function, bound to imitations of frames"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_frames", "Walks over frames.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__frames(void) { return PyModule_Create(&definition); }
