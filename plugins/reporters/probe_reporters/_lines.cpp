// Rows of cells as text, many times as fast as Python writes them.
//
// csv_line(cells, prepare) -> bytes: a line as csv.writer writes it.
// sheet_row(cells, number, style, prepare) -> bytes: a <row> of a worksheet; style 0 is none.
// styled_row(cells, number, styles, prepare) -> bytes: the same with a style for each cell.
//
// csv_rows(columns, count, prepare) -> bytes: the lines of rows given as columns.
// sheet_rows(columns, start, stop, first, styles, colours, prepare) -> bytes: the rows of a worksheet from `start` up to
//     `stop`, which are numbered from `first` on. `styles` holds the styles of all columns for each colour, and `colours` the
//     colour of each row.
//
// A column is (codes, texts, numbers): int32 codes, one per row, a sequence of cells, and float64 numbers or None. A code
// from 0 on is the place of the cell in `texts`; -1 means the number of the row, -2 that number as an integer, and
// -3 that number times 100 and a percent sign.
//
// Cells are str, float, int, bool or None. A text that needs more than quoting or escaping goes through
// prepare(text) -> str first; which texts those are is in `plain`. Numbers are written as repr() does:
// the fewest digits that read back as the same number. lines.py says the same in Python.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

// What neutralise() of text.py may change, or XML cannot hold: those texts are prepared in Python.
bool plain(std::string_view text) {
    if (text.empty()) return true;
    if (std::strchr("=+-@%\t\r \n", text[0])) return false;
    for (size_t i = 0; i < text.size(); i++) {
        unsigned char c = text[i];
        if (c == ';' || c == 0x7f || (c < 0x20 && c != '\n') || (c == '_' && i + 1 < text.size() && text[i + 1] == 'x'))
            return false;
    }
    return true;
}

constexpr Py_ssize_t LARGEST_TEXT = 32767;

// The text of a cell in UTF-8, prepared where it must be; `holder` keeps it alive. Null data: an error.
std::string_view text_of(PyObject *cell, PyObject *prepare, PyObject *&holder) {
    Py_ssize_t size;
    holder = nullptr;
    if (PyUnicode_IS_ASCII(cell) && PyUnicode_GET_LENGTH(cell) <= LARGEST_TEXT) {
        const char *data = PyUnicode_AsUTF8AndSize(cell, &size);
        if (!data) return {};
        if (plain({data, (size_t)size})) return {data, (size_t)size};
    }
    holder = PyObject_CallOneArg(prepare, cell);
    if (!holder) return {};
    if (!PyUnicode_Check(holder)) {
        PyErr_SetString(PyExc_TypeError, "prepare must return a text");
        return {};
    }
    const char *data = PyUnicode_AsUTF8AndSize(holder, &size);
    return data ? std::string_view(data, (size_t)size) : std::string_view();
}

// A finite number as repr() writes it.
void append_float(std::string &out, double value) {
    char raw[40];
    std::to_chars_result done = std::to_chars(raw, raw + sizeof raw, value, std::chars_format::scientific);
    char *at = raw;
    if (*at == '-') {
        out += '-';
        at++;
    }
    char *e = at;
    while (*e != 'e') e++;
    int exponent = 0;
    std::from_chars(e[1] == '+' ? e + 2 : e + 1, done.ptr, exponent);
    char digits[24];
    int count = 0;
    for (; at < e; at++)
        if (*at != '.') digits[count++] = *at;
    int point = exponent + 1;  // where the decimal point stands among the digits
    if (point > 16 || point <= -4) {
        out += digits[0];
        if (count > 1) {
            out += '.';
            out.append(digits + 1, count - 1);
        }
        out += 'e';
        out += exponent < 0 ? '-' : '+';
        int size = exponent < 0 ? -exponent : exponent;
        if (size < 10) out += '0';
        char number[8];
        out.append(number, std::to_chars(number, number + sizeof number, size).ptr - number);
    } else if (point <= 0) {
        out += "0.";
        out.append(-point, '0');
        out.append(digits, count);
    } else if (point >= count) {
        out.append(digits, count);
        out.append(point - count, '0');
        out += ".0";
    } else {
        out.append(digits, point);
        out += '.';
        out.append(digits + point, count - point);
    }
}

bool append_str(std::string &out, PyObject *value) {
    PyObject *text = PyObject_Str(value);
    Py_ssize_t size;
    const char *data = text ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
    if (data) out.append(data, size);
    Py_XDECREF(text);
    return data;
}

bool append_number(std::string &out, PyObject *cell) {
    if (!PyFloat_Check(cell)) return append_str(out, cell);
    double value = PyFloat_AS_DOUBLE(cell);
    if (!std::isfinite(value)) return append_str(out, cell);
    append_float(out, value);
    return true;
}

void append_csv_text(std::string &out, std::string_view text) {
    if (text.find_first_of(",\"\r\n") == text.npos) {
        out += text;
        return;
    }
    out += '"';
    for (char c : text) {
        if (c == '"') out += '"';
        out += c;
    }
    out += '"';
}

void append_xml_text(std::string &out, std::string_view text) {
    for (char c : text) {
        if (c == '&') out += "&amp;";
        else if (c == '<') out += "&lt;";
        else if (c == '>') out += "&gt;";
        else out += c;
    }
}

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t'; }

bool append_csv_cell(std::string &out, PyObject *cell, PyObject *prepare) {
    if (cell == Py_None) return true;
    if (!PyUnicode_Check(cell)) return append_number(out, cell);
    PyObject *holder;
    std::string_view text = text_of(cell, prepare, holder);
    if (text.data()) append_csv_text(out, text);
    Py_XDECREF(holder);
    return text.data();
}

// The start of a cell, up to and without its closing bracket: <c r="AB12" s="3"
void append_reference(std::string &out, Py_ssize_t column, const std::string &row, const std::string &style) {
    char letters[8];
    int count = 0;
    for (Py_ssize_t rest = column + 1; rest; rest = (rest - 1) / 26) letters[count++] = 'A' + (rest - 1) % 26;
    out += "<c r=\"";
    while (count) out += letters[--count];
    out += row;
    out += '"';
    out += style;
}

constexpr std::string_view EMPTY_CELL = "/>";  // of an empty text, which is written only for its style

// The part of a cell behind its style; nothing for None.
bool append_sheet_tail(std::string &out, PyObject *cell, PyObject *prepare) {
    bool is_text = PyUnicode_Check(cell) || (PyFloat_Check(cell) && !std::isfinite(PyFloat_AS_DOUBLE(cell)));
    if (is_text) {
        PyObject *holder = nullptr, *source = PyUnicode_Check(cell) ? Py_NewRef(cell) : PyObject_Str(cell);
        std::string_view text = source ? text_of(source, prepare, holder) : std::string_view();
        bool well = text.data();
        if (well && text.empty()) {
            out += EMPTY_CELL;
        } else if (well) {
            bool keeps = is_blank(text.front()) || is_blank(text.back());
            out += keeps ? " t=\"inlineStr\"><is><t xml:space=\"preserve\">" : " t=\"inlineStr\"><is><t>";
            append_xml_text(out, text);
            out += "</t></is></c>";
        }
        Py_XDECREF(source);
        Py_XDECREF(holder);
        return well;
    }
    if (cell == Py_None) return true;
    if (PyBool_Check(cell)) {
        out += cell == Py_True ? " t=\"b\"><v>1</v></c>" : " t=\"b\"><v>0</v></c>";
        return true;
    }
    out += "><v>";
    if (!append_number(out, cell)) return false;
    out += "</v></c>";
    return true;
}

void append_sheet_part(std::string &out, std::string_view tail, Py_ssize_t column, const std::string &row,
                       const std::string &style) {
    if (tail.empty() || (tail == EMPTY_CELL && style.empty())) return;
    append_reference(out, column, row, style);
    out += tail;
}

bool append_sheet_cell(std::string &out, PyObject *cell, Py_ssize_t column, const std::string &row,
                       const std::string &style, PyObject *prepare) {
    std::string tail;
    bool well = append_sheet_tail(tail, cell, prepare);
    append_sheet_part(out, tail, column, row, style);
    return well;
}

// A column of cells; `text` holds the cells of `texts` as they are written, as far as they are used again.
struct Column {
    Py_buffer codes{}, numbers{};
    PyObject *texts = nullptr;
    std::vector<std::string> text;

    Column() = default;
    Column(const Column &) = delete;
    Column &operator=(const Column &) = delete;
    ~Column() {
        if (codes.obj) PyBuffer_Release(&codes);
        if (numbers.obj) PyBuffer_Release(&numbers);
        Py_XDECREF(texts);
    }

    bool open(PyObject *source, Py_ssize_t count) {
        PyObject *code_buffer, *cells, *number_buffer;
        if (!PyArg_ParseTuple(source, "OOO:column", &code_buffer, &cells, &number_buffer)) return false;
        if (PyObject_GetBuffer(code_buffer, &codes, PyBUF_SIMPLE)) return false;
        if (number_buffer != Py_None && PyObject_GetBuffer(number_buffer, &numbers, PyBUF_SIMPLE)) return false;
        texts = PySequence_Fast(cells, "the texts must be a sequence");
        if (!texts) return false;
        Py_ssize_t size = PySequence_Fast_GET_SIZE(texts);
        if (size < count) text.resize(size);
        bool fits = codes.len == count * 4 && (!numbers.obj || numbers.len == count * 8);
        for (Py_ssize_t row = 0; fits && row < count; row++) {
            int32_t code = static_cast<const int32_t *>(codes.buf)[row];
            fits = code < size && (code >= 0 || (code >= -3 && numbers.obj));
        }
        if (!fits) PyErr_SetString(PyExc_ValueError, "a column does not fit its rows");
        return fits;
    }

    int32_t code(Py_ssize_t row) const { return static_cast<const int32_t *>(codes.buf)[row]; }

    // The number of a row, of which a table shows a ratio in percent.
    void append_own(std::string &out, Py_ssize_t row, bool in_percent) const {
        double number = static_cast<const double *>(numbers.buf)[row];
        bool is_ratio = code(row) == -3 && in_percent;
        if (code(row) == -2) out += std::to_string(static_cast<long long>(number));
        else append_float(out, is_ratio ? number * 100 : number);
        if (is_ratio) out += '%';
    }

    bool append_sheet(std::string &out, Py_ssize_t row, Py_ssize_t column, const std::string &label,
                      const std::string &style, PyObject *prepare) {
        int32_t place = code(row);
        if (place < 0) {
            append_reference(out, column, label, style);
            out += "><v>";
            append_own(out, row, false);
            out += "</v></c>";
            return true;
        }
        PyObject *cell = PySequence_Fast_GET_ITEM(texts, place);
        if (text.empty()) return append_sheet_cell(out, cell, column, label, style, prepare);
        if (text[place].empty() && !append_sheet_tail(text[place], cell, prepare)) return false;
        append_sheet_part(out, text[place], column, label, style);
        return true;
    }

    bool append_csv(std::string &out, Py_ssize_t row, PyObject *prepare) {
        int32_t code = this->code(row);
        if (code < 0) {
            append_own(out, row, true);
            return true;
        }
        PyObject *cell = PySequence_Fast_GET_ITEM(texts, code);
        if (text.empty()) return append_csv_cell(out, cell, prepare);
        if (text[code].empty() && !append_csv_cell(text[code], cell, prepare)) return false;
        out += text[code];
        return true;
    }
};

PyObject *csv_rows(PyObject *, PyObject *args) {
    PyObject *sources, *prepare;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!nO:csv_rows", &PyList_Type, &sources, &count, &prepare)) return nullptr;
    std::vector<Column> columns(PyList_GET_SIZE(sources));
    for (size_t i = 0; i < columns.size(); i++)
        if (!columns[i].open(PyList_GET_ITEM(sources, i), count)) return nullptr;
    std::string out;
    for (Py_ssize_t row = 0; row < count; row++) {
        size_t start = out.size();
        for (size_t i = 0; i < columns.size(); i++) {
            if (i) out += ',';
            if (!columns[i].append_csv(out, row, prepare)) return nullptr;
        }
        if (out.size() == start && columns.size() == 1) out += "\"\"";  // a line of its own, not a blank one
        out += "\r\n";
    }
    return PyBytes_FromStringAndSize(out.data(), out.size());
}

PyObject *sheet_rows(PyObject *, PyObject *args) {
    PyObject *sources, *styles, *prepare;
    Py_ssize_t first, start, stop;
    const char *colours;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!nnnO!y#O:sheet_rows", &PyList_Type, &sources, &start, &stop, &first, &PyList_Type,
                          &styles, &colours, &count, &prepare))
        return nullptr;
    std::vector<Column> columns(PyList_GET_SIZE(sources));
    for (size_t i = 0; i < columns.size(); i++)
        if (!columns[i].open(PyList_GET_ITEM(sources, i), count)) return nullptr;
    std::vector<std::vector<std::string>> looks(PyList_GET_SIZE(styles));
    for (size_t colour = 0; colour < looks.size(); colour++) {
        PyObject *own = PySequence_Fast(PyList_GET_ITEM(styles, colour), "the styles must be sequences");
        if (!own) return nullptr;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(own); i++) {
            long style = PyLong_AsLong(PySequence_Fast_GET_ITEM(own, i));
            looks[colour].push_back(style ? " s=\"" + std::to_string(style) + "\"" : "");
        }
        Py_DECREF(own);
        if (PyErr_Occurred()) return nullptr;
        if (looks[colour].size() != columns.size()) {
            PyErr_SetString(PyExc_ValueError, "each column needs a style");
            return nullptr;
        }
    }
    if (start < 0 || stop > count || start > stop) {
        PyErr_SetString(PyExc_ValueError, "there are no such rows");
        return nullptr;
    }
    std::string out;
    for (Py_ssize_t row = start; row < stop; row++) {
        size_t colour = static_cast<unsigned char>(colours[row]);
        if (colour >= looks.size()) {
            PyErr_SetString(PyExc_ValueError, "there is no such colour");
            return nullptr;
        }
        std::string label = std::to_string(first + row - start);
        out += "<row r=\"" + label + "\">";
        for (size_t i = 0; i < columns.size(); i++)
            if (!columns[i].append_sheet(out, row, i, label, looks[colour][i], prepare)) return nullptr;
        out += "</row>";
    }
    return PyBytes_FromStringAndSize(out.data(), out.size());
}

PyObject *csv_line(PyObject *, PyObject *args) {
    PyObject *cells, *prepare;
    if (!PyArg_ParseTuple(args, "OO:csv_line", &cells, &prepare)) return nullptr;
    PyObject *row = PySequence_Fast(cells, "the cells must be a sequence");
    if (!row) return nullptr;
    std::string out;
    out.reserve(1024);
    bool well = true;
    for (Py_ssize_t i = 0; well && i < PySequence_Fast_GET_SIZE(row); i++) {
        if (i) out += ',';
        well = append_csv_cell(out, PySequence_Fast_GET_ITEM(row, i), prepare);
    }
    if (out.empty() && PySequence_Fast_GET_SIZE(row) == 1) out = "\"\"";  // a line of its own, not a blank one
    Py_DECREF(row);
    out += "\r\n";
    return well ? PyBytes_FromStringAndSize(out.data(), out.size()) : nullptr;
}

PyObject *sheet_row(PyObject *, PyObject *args) {
    PyObject *cells, *prepare;
    Py_ssize_t number;
    int style;
    if (!PyArg_ParseTuple(args, "OniO:sheet_row", &cells, &number, &style, &prepare)) return nullptr;
    PyObject *row = PySequence_Fast(cells, "the cells must be a sequence");
    if (!row) return nullptr;
    std::string out, label = std::to_string(number), look = style ? " s=\"" + std::to_string(style) + "\"" : "";
    out.reserve(2048);
    out += "<row r=\"" + label + "\">";
    bool well = true;
    for (Py_ssize_t i = 0; well && i < PySequence_Fast_GET_SIZE(row); i++)
        well = append_sheet_cell(out, PySequence_Fast_GET_ITEM(row, i), i, label, look, prepare);
    Py_DECREF(row);
    out += "</row>";
    return well ? PyBytes_FromStringAndSize(out.data(), out.size()) : nullptr;
}

PyObject *styled_row(PyObject *, PyObject *args) {
    PyObject *cells, *styles, *prepare;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "OnOO:styled_row", &cells, &number, &styles, &prepare)) return nullptr;
    PyObject *row = PySequence_Fast(cells, "the cells must be a sequence");
    PyObject *looks = row ? PySequence_Fast(styles, "the styles must be a sequence") : nullptr;
    if (!looks) {
        Py_XDECREF(row);
        return nullptr;
    }
    std::string out, label = std::to_string(number), look;
    out.reserve(2048);
    out += "<row r=\"" + label + "\">";
    bool well = true;
    long last = 0;
    Py_ssize_t count = std::min(PySequence_Fast_GET_SIZE(row), PySequence_Fast_GET_SIZE(looks));
    for (Py_ssize_t i = 0; well && i < count; i++) {
        long style = PyLong_AsLong(PySequence_Fast_GET_ITEM(looks, i));
        if (style == -1 && PyErr_Occurred()) {
            well = false;
            break;
        }
        if (style != last) look = style ? " s=\"" + std::to_string(style) + "\"" : "";
        last = style;
        well = append_sheet_cell(out, PySequence_Fast_GET_ITEM(row, i), i, label, look, prepare);
    }
    Py_DECREF(row);
    Py_DECREF(looks);
    out += "</row>";
    return well ? PyBytes_FromStringAndSize(out.data(), out.size()) : nullptr;
}

PyMethodDef METHODS[] = {{"csv_line", csv_line, METH_VARARGS, nullptr},
                         {"csv_rows", csv_rows, METH_VARARGS, nullptr},
                         {"sheet_rows", sheet_rows, METH_VARARGS, nullptr},
                         {"sheet_row", sheet_row, METH_VARARGS, nullptr},
                         {"styled_row", styled_row, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_lines", nullptr, -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__lines(void) { return PyModule_Create(&MODULE); }
